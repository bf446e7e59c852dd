//! A text that is made by a grammar: small, the same everywhere and forever, and free of anybody's rights.
//!
//! There is something to learn at every distance: spelling, which words follow which, verbs that agree with their
//! subject, and ends of sentences that follow from their beginning.

use crate::random::Stream;

/// Things, and what they do.
const THINGS: [(&str, &str, &str); 10] = [
    ("baker", "bakes", "bread"),
    ("gardener", "waters", "roses"),
    ("sailor", "watches", "clouds"),
    ("teacher", "writes", "letters"),
    ("farmer", "counts", "sheep"),
    ("painter", "mixes", "colours"),
    ("tailor", "sews", "coats"),
    ("miller", "grinds", "wheat"),
    ("smith", "mends", "kettles"),
    ("singer", "hums", "old songs"),
];
const QUALITIES: [&str; 8] = ["young", "quiet", "clever", "cheerful", "tired", "patient", "tall", "curious"];
/// Times of the day, and what the weather is like then.
const TIMES: [(&str, &str); 5] = [
    ("At dawn", "the fog is thick"),
    ("In the morning", "the grass is wet"),
    ("At noon", "the sun is high"),
    ("In the evening", "the light is soft"),
    ("At night", "the stars are out"),
];
const NAMES: [&str; 8] = ["Anna", "Bruno", "Clara", "David", "Elena", "Felix", "Greta", "Henry"];
const GOODS: [&str; 6] = ["apples", "plums", "cups", "ribbons", "candles", "nuts"];
const NUMBERS: [&str; 11] = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/// Sentences of the grammar until there are at least so many characters.
pub fn text(characters: usize) -> String {
    let mut stream = Stream::new("grammar", &[]);
    let mut text = String::new();
    while text.len() < characters {
        text.push_str(&sentence(&mut stream));
        text.push(if stream.below(6) == 0 { '\n' } else { ' ' });
    }
    text
}

fn sentence(stream: &mut Stream) -> String {
    let mut draw = |limit: usize| stream.below(limit as u64) as usize;
    let (thing, does, what) = THINGS[draw(THINGS.len())];
    let (quality, name) = (QUALITIES[draw(QUALITIES.len())], NAMES[draw(NAMES.len())]);
    match draw(4) {
        0 => format!("The {quality} {thing} {does} {what}."),
        1 => {
            // Several do what one does, without the ending of its verb.
            let plural = if does.ends_with("ches") || does.ends_with("xes") { 2 } else { 1 };
            format!("All {quality} {thing}s {} {what}.", &does[..does.len() - plural])
        }
        2 => {
            let (time, weather) = TIMES[draw(TIMES.len())];
            format!("{time} {name} meets the {thing}, who {does} {what} while {weather}.")
        }
        _ => {
            let (first, second, goods) = (2 + draw(4), 2 + draw(4), GOODS[draw(GOODS.len())]);
            let (buys, finds, all) = (NUMBERS[first], NUMBERS[second], NUMBERS[first + second]);
            format!("{name} buys {buys} {goods} and finds {finds} more: {name} has {all} {goods}.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_always_the_same() {
        let made = text(2000);
        assert!((2000..2100).contains(&made.len()) && made.is_ascii());
        assert!(text(4000).starts_with(&made));
        assert!(made.starts_with("Henry buys three cups and finds four more: Henry has seven cups."), "{made}");
    }

    #[test]
    fn sentences_are_right() {
        let made = text(20_000);
        for sentence in made.split_inclusive('.').map(str::trim) {
            let words: Vec<&str> = sentence.trim_end_matches('.').split(' ').collect();
            let number = |word: &str| NUMBERS.iter().position(|number| *number == word);
            if let ["buys", first, goods, _, "finds", second, _, name, _, all, again] = words[1.min(words.len())..] {
                assert_eq!((name, again), (words[0], goods), "{sentence}");
                assert_eq!(number(first).zip(number(second)).map(|(a, b)| a + b), number(all), "{sentence}");
            }
        }
        for right in ["All ", "s watch clouds.", "s mix colours.", "s bake bread.", "while the stars are out."] {
            assert!(made.contains(right), "{right}");
        }
    }
}
