//! The command of a trial: words with `{name}` where parameters go, filled in for each trial.
//!
//! A parameter that does not exist at a point leaves no trace: its word goes, and so does the option before it, so that
//! `--momentum {momentum}` is there for `sgd` only. `{{` and `}}` are braces.

use sirtaki_search::{
    SearchError,
    space::{Domain, Point, Space},
};

use crate::printer::Advice;

/// What can be filled in besides parameters.
pub const BUILT_IN: [&str; 4] = ["trial", "folder", "seed", "parameters"];

const HINT: &str = "write {name} where the value of a parameter goes, and {{ or }} for a brace";

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Hole(String),
}

/// A command with holes.
#[derive(Debug, Clone, PartialEq)]
pub struct Template(Vec<Vec<Piece>>);

/// What fills the holes of a trial that are not parameters.
#[derive(Debug, Clone)]
pub struct BuiltIn<'a> {
    /// Its number.
    pub trial: u64,
    /// Its folder.
    pub folder: &'a str,
    /// A seed of its own.
    pub seed: u64,
}

impl Template {
    /// Reads a command.
    pub fn parse(words: &[String]) -> Result<Self, Advice> {
        words.iter().map(|word| pieces(word)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether every hole can be filled and every parameter has its place.
    pub fn check(&self, space: &Space) -> Result<(), Advice> {
        let holes: Vec<&str> = self.holes().collect();
        let names = || space.parameters().iter().map(|parameter| parameter.name.as_str());
        if let Some(unknown) = holes.iter().find(|hole| !names().chain(BUILT_IN).any(|known| known == **hole)) {
            let error = SearchError::unknown("placeholder", unknown, names().chain(BUILT_IN));
            return Err(Advice::new(error.to_string(), HINT));
        }
        let missing: Vec<String> =
            names().filter(|name| !holes.contains(name)).map(|name| format!("{{{name}}}")).collect();
        if missing.is_empty() || holes.contains(&"parameters") {
            return Ok(());
        }
        let message = format!("nothing tells the program about {}", missing.join(" and "));
        let option = missing[0].trim_matches(['{', '}']);
        let hint = format!(
            "add words such as \"--{option}\", \"{}\" to the command, or \"{{parameters}}\" for all of them as JSON",
            missing[0]
        );
        Err(Advice::new(message, hint))
    }

    fn holes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flatten().filter_map(|piece| match piece {
            Piece::Hole(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// The command of a trial.
    pub fn fill(&self, space: &Space, point: &Point, about: &BuiltIn<'_>) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        // Whether the last word is an option that waits for its value.
        let mut waiting = false;
        for word in &self.0 {
            let filled: Option<String> = word.iter().map(|piece| fill(piece, space, point, about)).collect();
            let fixed = !word.iter().any(|piece| matches!(piece, Piece::Hole(_)));
            match filled {
                Some(text) => {
                    waiting = fixed && text.starts_with('-') && !text.contains('=');
                    words.push(text);
                }
                None => {
                    if std::mem::take(&mut waiting) {
                        words.pop();
                    }
                }
            }
        }
        words
    }
}

fn fill(piece: &Piece, space: &Space, point: &Point, about: &BuiltIn<'_>) -> Option<String> {
    let name = match piece {
        Piece::Text(text) => return Some(text.clone()),
        Piece::Hole(name) => name,
    };
    if let Some(index) = space.index(name) {
        return point.0.get(index).copied().flatten().map(|value| word(&space.parameters()[index].domain, value));
    }
    Some(match name.as_str() {
        "trial" => about.trial.to_string(),
        "folder" => about.folder.to_owned(),
        "seed" => about.seed.to_string(),
        _ => as_json(space, point).to_string(),
    })
}

fn pieces(word: &str) -> Result<Vec<Piece>, Advice> {
    let refuse = |problem: &str| Advice::new(format!("`{word}` {problem}"), HINT);
    let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), word);
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            text.push_str(brace);
            rest = after;
        } else if brace == "}" {
            return Err(refuse("has a closing brace without an opening one"));
        } else {
            let (name, after) =
                rest.split_once('}').ok_or_else(|| refuse("has an opening brace without a closing one"))?;
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Hole(name.trim().to_owned()));
            rest = after;
        }
    }
    text.push_str(rest);
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// A value as it is typed.
pub fn word(domain: &Domain, value: f64) -> String {
    match domain {
        Domain::Float { .. } => format!("{value:?}"),
        Domain::Int { .. } => format!("{value:.0}"),
        Domain::Choices(choices) => choices.get(value as usize).map_or_else(String::new, ToString::to_string),
    }
}

/// A value as data.
pub fn value_as_json(domain: &Domain, value: f64) -> serde_json::Value {
    match domain {
        Domain::Float { .. } => value.into(),
        Domain::Int { .. } => (value as i64).into(),
        Domain::Choices(choices) => {
            choices.get(value as usize).and_then(|choice| serde_json::to_value(choice).ok()).unwrap_or_default()
        }
    }
}

/// All parameters of a point.
pub fn as_json(space: &Space, point: &Point) -> serde_json::Value {
    let entry = |(parameter, value): (&sirtaki_search::space::Parameter, &Option<f64>)| {
        Some((parameter.name.clone(), value_as_json(&parameter.domain, (*value)?)))
    };
    serde_json::Value::Object(space.parameters().iter().zip(&point.0).filter_map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: &str = "optimizer=sgd|adam,lr=log:1e-5..1,layers=int:1..6,momentum=0..0.9 when optimizer == 'sgd'";

    fn template(line: &str) -> Template {
        Template::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    fn filled(line: &str, optimizer: f64) -> String {
        let space: Space = SPACE.parse().unwrap();
        let momentum = (optimizer == 0.0).then_some(0.5);
        let point = Point(vec![Some(optimizer), Some(1e-5), Some(3.0), momentum]);
        template(line).fill(&space, &point, &BuiltIn { trial: 7, folder: "runs/s/0007", seed: 9 }).join(" ")
    }

    #[test]
    fn values_go_where_their_names_are() {
        let line = "python train.py --lr {lr} --layers={layers} -o {optimizer} {{x}} {folder}/m.pt {trial} {seed}";
        let expected = "python train.py --lr 1e-5 --layers=3 -o adam {x} runs/s/0007/m.pt 7 9";
        assert_eq!(filled(line, 1.0), expected);
        let all = r#"{"layers":3,"lr":0.00001,"momentum":0.5,"optimizer":"sgd"}"#;
        assert_eq!(filled("a {parameters}", 0.0), format!("a {all}"));
    }

    #[test]
    fn parameters_that_do_not_exist_leave_no_trace() {
        assert_eq!(filled("t --momentum {momentum} --lr {lr}", 0.0), "t --momentum 0.5 --lr 1e-5");
        assert_eq!(filled("t --momentum {momentum} --lr {lr}", 1.0), "t --lr 1e-5");
        assert_eq!(filled("t -v m={momentum} --lr={lr} {momentum}", 1.0), "t --lr=1e-5");
    }

    #[test]
    fn what_cannot_be_filled_is_refused() {
        let space: Space = SPACE.parse().unwrap();
        let refusal = template("t {lr} {layesr} {optimizer} {momentum}").check(&space).unwrap_err();
        assert_eq!(refusal.message, "unknown placeholder `layesr`; did you mean `layers`?");
        let refusal = template("t --lr {lr} {optimizer}").check(&space).unwrap_err();
        assert_eq!(refusal.message, "nothing tells the program about {layers} and {momentum}");
        assert!(refusal.hint.contains("\"--layers\", \"{layers}\""), "{}", refusal.hint);
        template("t {parameters}").check(&space).unwrap();
        for wrong in ["{lr", "lr}", "{a}}"] {
            assert!(Template::parse(&[wrong.to_owned()]).unwrap_err().message.contains("brace"), "{wrong}");
        }
    }
}
