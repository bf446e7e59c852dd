//! Conditions as people write them: `optimizer == 'sgd'`, `layers > 2 and not act in ['relu', 'gelu']`.
//!
//! A comparison has a parameter on its left and constants on its right, nothing else: so a machine can say whether
//! a condition can ever hold. A comparison with a parameter that is itself off is false.

use serde::{Deserialize, Serialize};

use super::Choice;

/// How a parameter is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `==`
    Equal,
    /// `!=`
    Different,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `in [...]`
    In,
}

/// A condition, parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// At least one holds.
    Any(Vec<Expression>),
    /// All hold.
    All(Vec<Expression>),
    /// It does not hold.
    Not(Box<Expression>),
    /// A parameter compared with one constant, or with several for [`Operator::In`].
    Compare(String, Operator, Vec<Choice>),
}

/// A condition: its text and what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Condition {
    text: String,
    expression: Expression,
}

impl Condition {
    /// Reads a condition, or says in half a sentence what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
        let expression = parser.any()?;
        match parser.peek() {
            None => Ok(Self { text: text.trim().to_owned(), expression }),
            Some(token) => Err(format!("{} is left over at its end", token.shown())),
        }
    }

    /// What it means.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Condition> for String {
    fn from(condition: Condition) -> Self {
        condition.text
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Constant(Choice),
    Sign(&'static str),
}

impl Token {
    fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("`{word}`"),
            Self::Constant(constant) => format!("`{constant}`"),
            Self::Sign(sign) => format!("`{sign}`"),
        }
    }
}

const SIGNS: [&str; 14] = ["==", "!=", "<=", ">=", "&&", "||", "<", ">", "(", ")", "[", "]", ",", "!"];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push(Token::Sign(sign));
            sign.len()
        } else if first == '\'' || first == '"' {
            let end = rest[1..].find(first).ok_or_else(|| format!("the quote {first} is never closed"))?;
            tokens.push(Token::Constant(Choice::Text(rest[1..=end].to_owned())));
            end + 2
        } else if first == '`' {
            let end = rest[1..].find('`').ok_or("the quote ` is never closed")?;
            tokens.push(Token::Word(rest[1..=end].to_owned()));
            end + 2
        } else if first.is_ascii_digit() || "+-.".contains(first) {
            let number = |c: char, before: Option<char>| {
                c.is_ascii_alphanumeric() || "._".contains(c) || ("+-".contains(c) && matches!(before, Some('e' | 'E')))
            };
            let length = run(rest, first.len_utf8(), number);
            tokens.push(Token::Constant(parse_number(&rest[..length])?));
            length
        } else if first.is_alphabetic() || first == '_' {
            let length = run(rest, first.len_utf8(), |c, _| c.is_alphanumeric() || "_-./".contains(c));
            tokens.push(word(&rest[..length]));
            length
        } else if first == '=' {
            return Err("a single `=` compares nothing; write `==`".into());
        } else {
            return Err(format!("`{first}` means nothing here"));
        };
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// How many bytes from the start on satisfy `part`, which sees each character and the one before it.
fn run(text: &str, start: usize, part: impl Fn(char, Option<char>) -> bool) -> usize {
    let mut before = text.chars().next();
    for (index, c) in text[start..].char_indices() {
        if !part(c, before) {
            return start + index;
        }
        before = Some(c);
    }
    text.len()
}

fn parse_number(text: &str) -> Result<Choice, String> {
    let plain = text.replace('_', "");
    if let Ok(number) = plain.parse::<i64>() {
        return Ok(Choice::Integer(number));
    }
    let number = plain.parse::<f64>().ok().filter(|number| number.is_finite());
    number.map(Choice::Number).ok_or_else(|| format!("`{text}` is not a number"))
}

fn word(text: &str) -> Token {
    match text {
        "true" | "True" => Token::Constant(Choice::Flag(true)),
        "false" | "False" => Token::Constant(Choice::Flag(false)),
        "none" | "None" | "null" => Token::Constant(Choice::Null),
        "and" => Token::Sign("&&"),
        "or" => Token::Sign("||"),
        "not" => Token::Sign("!"),
        _ => Token::Word(text.to_owned()),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

/// How deep parentheses and negations may nest, so that no text can exhaust the stack.
const DEEPEST: usize = 50;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += 1;
        token
    }

    fn eat(&mut self, sign: &str) -> bool {
        let there = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.next += usize::from(there);
        there
    }

    fn any(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.all()?];
        while self.eat("||") {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
    }

    fn all(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.negated()?];
        while self.eat("&&") {
            parts.push(self.negated()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
    }

    fn negated(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("it nests deeper than {DEEPEST}"));
        }
        let expression = if self.eat("!") {
            Expression::Not(Box::new(self.negated()?))
        } else if self.eat("(") {
            let inner = self.any()?;
            if !self.eat(")") {
                return Err("a parenthesis is never closed".into());
            }
            inner
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn comparison(&mut self) -> Result<Expression, String> {
        let name = match self.take() {
            Some(Token::Word(name)) => name,
            Some(other) => return Err(format!("a parameter's name is expected before {}", other.shown())),
            None => return Err("it ends where a parameter's name is expected".into()),
        };
        let negated = self.eat("!");
        if matches!(self.peek(), Some(Token::Word(word)) if word == "in") {
            self.next += 1;
            let compare = Expression::Compare(name, Operator::In, self.list()?);
            return Ok(if negated { Expression::Not(Box::new(compare)) } else { compare });
        }
        let operator = match self.take() {
            Some(Token::Sign(sign)) if !negated => operator(sign),
            _ => None,
        };
        let operator = operator.ok_or_else(|| format!("a comparison such as `==` is expected after `{name}`"))?;
        Ok(Expression::Compare(name, operator, vec![self.constant()?]))
    }

    fn list(&mut self) -> Result<Vec<Choice>, String> {
        if !self.eat("[") {
            return Err("a list such as [1, 2] is expected after `in`".into());
        }
        let mut constants = vec![self.constant()?];
        while !self.eat("]") {
            if !self.eat(",") {
                return Err("a list is never closed".into());
            }
            constants.push(self.constant()?);
        }
        Ok(constants)
    }

    fn constant(&mut self) -> Result<Choice, String> {
        match self.take() {
            Some(Token::Constant(constant)) => Ok(constant),
            Some(Token::Word(word)) => Err(format!("`{word}` is not a constant; a word needs quotes: '{word}'")),
            Some(other) => Err(format!("a constant is expected, not {}", other.shown())),
            None => Err("it ends where a constant is expected".into()),
        }
    }
}

fn operator(sign: &str) -> Option<Operator> {
    Some(match sign {
        "==" => Operator::Equal,
        "!=" => Operator::Different,
        "<" => Operator::Less,
        "<=" => Operator::AtMost,
        ">" => Operator::Greater,
        ">=" => Operator::AtLeast,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn precedence_is_not_and_or() {
        let parsed = Condition::parse("a == 1 or not b < 2.5 and c in ['x', true]").unwrap();
        let compare = |name: &str, operator, constants| Expression::Compare(name.into(), operator, constants);
        let b = compare("b", Operator::Less, vec![Choice::Number(2.5)]);
        let c = compare("c", Operator::In, vec![Choice::Text("x".into()), Choice::Flag(true)]);
        let expected = Expression::Any(vec![
            compare("a", Operator::Equal, vec![Choice::Integer(1)]),
            Expression::All(vec![Expression::Not(Box::new(b)), c]),
        ]);
        assert_eq!(*parsed.expression(), expected);
        assert_eq!(Condition::parse("batch-size not in [1e-3]").unwrap().to_string(), "batch-size not in [1e-3]");
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        for (text, problem) in [
            ("", "it ends where a parameter's name is expected"),
            ("a", "a comparison such as `==` is expected after `a`"),
            ("a = 1", "a single `=` compares nothing; write `==`"),
            ("a == b", "`b` is not a constant; a word needs quotes: 'b'"),
            ("a == 'b", "the quote ' is never closed"),
            ("1 == a", "a parameter's name is expected before `1`"),
            ("(a == 1", "a parenthesis is never closed"),
            ("a in 1", "a list such as [1, 2] is expected after `in`"),
            ("a == 1 b", "`b` is left over at its end"),
            ("a == 1x", "`1x` is not a number"),
            ("a == 1 ; b", "`;` means nothing here"),
        ] {
            assert_eq!(Condition::parse(text).unwrap_err(), problem, "{text}");
        }
        assert!(Condition::parse(&"(".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-c'\"`=!<>&|()\\[\\], 0-9e.é+-]{0,40}") {
            let _ = Condition::parse(&text);
        }
    }
}
