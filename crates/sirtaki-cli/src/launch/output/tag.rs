//! What stands before each line: whose it is.

use std::collections::BTreeSet;

use sirtaki_launch::roles::Cast;

/// What stands before each line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Tag {
    /// The rank: `[0] `.
    #[default]
    Rank,
    /// Host and rank: `[node7:0] `.
    Host,
    /// Nothing.
    None,
}

/// Colours of the 256 that differ from each other and can be read on black and on white alike.
const PALETTE: [u8; 12] = [33, 166, 29, 134, 100, 168, 31, 131, 64, 98, 67, 133];

/// The tags of all processes, equally wide.
pub(super) fn tags(tag: Tag, hosts: &[String], cast: &Cast) -> Vec<String> {
    let names: Vec<String> = (0..hosts.len()).map(|process| cast.short_name(process)).collect();
    let longest = names.iter().map(String::len).max().unwrap_or(0);
    match tag {
        Tag::None => vec![String::new(); hosts.len()],
        Tag::Rank => names.iter().map(|name| format!("[{name:>longest$}] ")).collect(),
        Tag::Host => {
            let names = short(hosts).into_iter().zip(&names);
            let tags: Vec<String> = names.map(|(host, name)| format!("[{host}:{name}] ")).collect();
            let width = tags.iter().map(|tag| tag.chars().count()).max().unwrap_or(0);
            tags.into_iter().map(|tag| format!("{tag:<width$}")).collect()
        }
    }
}

/// A tag in the colour of its rank.
pub(super) fn colour(tag: &str, rank: usize) -> String {
    match tag.trim_end() {
        "" => String::new(),
        word => format!("\x1b[38;5;{}m{word}\x1b[0m{}", PALETTE[rank % PALETTE.len()], &tag[word.len()..]),
    }
}

/// Host names without their domains, where that is enough to tell them apart.
fn short(hosts: &[String]) -> Vec<&str> {
    fn first(host: &str) -> &str {
        // The parts of an address are not domains.
        if host.parse::<std::net::IpAddr>().is_ok() { host } else { host.split('.').next().unwrap_or(host) }
    }
    let full: BTreeSet<&str> = hosts.iter().map(String::as_str).collect();
    let cut: BTreeSet<&str> = full.iter().map(|host| first(host)).collect();
    let clear = cut.len() == full.len();
    hosts.iter().map(|host| if clear { first(host) } else { host }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn tags_are_equally_wide() {
        assert_eq!(tags(Tag::Rank, &vec![String::new(); 11], &Cast::of_ranks(11))[9..], ["[ 9] ", "[10] "]);
        let cast = Cast { servers: 1, coordinator: true, ..Cast::of_ranks(1) };
        assert_eq!(tags(Tag::Rank, &vec![String::new(); 3], &cast), ["[ 0] ", "[s0] ", "[ c] "]);
        let three = hosts(&["a.lan", "a.lan", "node7.lan"]);
        assert_eq!(tags(Tag::Host, &three, &Cast::of_ranks(3)), ["[a:0]     ", "[a:1]     ", "[node7:2] "]);
        assert_eq!(tags(Tag::None, &three, &Cast::of_ranks(3)), ["", "", ""]);
    }

    #[test]
    fn names_that_differ_only_in_the_domain_keep_it() {
        assert_eq!(short(&hosts(&["a.x", "a.y"])), ["a.x", "a.y"]);
        assert_eq!(short(&hosts(&["10.0.0.1", "10.0.0.2"])), ["10.0.0.1", "10.0.0.2"]);
    }

    #[test]
    fn only_the_word_is_coloured() {
        assert_eq!(colour("[a:0]  ", 1), "\x1b[38;5;166m[a:0]\x1b[0m  ");
        assert_eq!(colour("", 1), "");
        assert_eq!(colour("[0] ", 0), colour("[0] ", PALETTE.len()));
    }

    /// The contrast that the accessibility guidelines of the web ask for in bold or large text is 3.
    #[test]
    fn every_colour_can_be_read_on_black_and_on_white() {
        for colour in PALETTE {
            let part = |divisor: u8| {
                let level = f64::from([0, 95, 135, 175, 215, 255][usize::from((colour - 16) / divisor % 6)]) / 255.0;
                if level <= 0.04 { level / 12.92 } else { ((level + 0.055) / 1.055).powf(2.4) }
            };
            let light = 0.2126 * part(36) + 0.7152 * part(6) + 0.0722 * part(1);
            let (on_black, on_white) = ((light + 0.05) / 0.05, 1.05 / (light + 0.05));
            assert!(on_black >= 3.0 && on_white >= 3.0, "{colour}: {on_black:.1} {on_white:.1}");
        }
    }
}
