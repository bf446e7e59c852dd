//! What bytes mean to a terminal, as far as it matters here: text, line ends, colours, and where the cursor goes.
//!
//! Bytes come in pieces of any size, so whatever may be the beginning of a sequence is held until it is known; at most
//! [`LONGEST`] bytes. Rejected: a whole terminal emulator per rank, which would have to know a width that ranks were
//! never told, and could not pass on bytes that it does not understand.

/// A longer sequence is not taken for a control sequence.
const LONGEST: usize = 64;

const ESCAPE: u8 = 0x1b;

/// A piece of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Characters, perhaps in invalid UTF-8, and tabs.
    Text(&'a [u8]),
    /// To the next line.
    Newline,
    /// To the beginning of the line.
    Return,
    /// That many lines up.
    Up(usize),
    /// That many lines down.
    Down(usize),
    /// The line from the cursor on, or all of it.
    Erase {
        /// Also what is before the cursor.
        all: bool,
    },
    /// Colour, or another attribute of the text that follows.
    Look(&'a [u8]),
    /// Anything else that a terminal would obey or ignore.
    Other(&'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ground,
    /// After the first byte of what may be a control character in UTF-8.
    Lead,
    /// After an escape character, and bytes that only announce more.
    Escape,
    /// In a sequence with parameters.
    Control,
    /// In a text for the terminal itself, such as a window's title.
    Title,
    /// After an escape character in there, which may end it.
    TitleEscape,
}

/// Cuts bytes into tokens.
#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
    held: Vec<u8>,
}

impl Scanner {
    pub(super) fn new() -> Self {
        Self { state: State::Ground, held: Vec::new() }
    }

    /// The tokens that `bytes` complete.
    pub(super) fn feed(&mut self, bytes: &[u8], token: &mut impl FnMut(Token<'_>)) {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            if self.state == State::Ground {
                let text = rest.iter().position(|&byte| is_special(byte)).unwrap_or(rest.len());
                if text > 0 {
                    token(Token::Text(&rest[..text]));
                    rest = &rest[text..];
                    continue;
                }
            }
            if self.step(byte, token) {
                rest = &rest[1..];
            }
        }
    }

    /// What is still held: the stream has ended.
    pub(super) fn finish(&mut self, token: &mut impl FnMut(Token<'_>)) {
        self.give_up(token);
    }

    /// Takes one byte; `false` if it is to be looked at again in the new state.
    fn step(&mut self, byte: u8, token: &mut impl FnMut(Token<'_>)) -> bool {
        match self.state {
            State::Ground => self.begin(byte, token),
            State::Lead => {
                self.state = State::Ground;
                self.held.clear();
                match byte {
                    0x80..=0x9f => token(Token::Other(&[0xc2, byte])),
                    _ => token(Token::Text(&[0xc2])),
                }
                return (0x80..=0x9f).contains(&byte);
            }
            State::Escape => match byte {
                b'[' if self.held.len() == 1 => self.hold(byte, State::Control),
                b']' | b'P' | b'X' | b'^' | b'_' if self.held.len() == 1 => {
                    self.held.push(byte);
                    self.give_up(token);
                    self.state = State::Title;
                }
                0x20..=0x2f if self.held.len() < LONGEST => self.hold(byte, State::Escape),
                0x30..=0x7e => {
                    self.held.push(byte);
                    self.give_up(token);
                }
                _ => return self.give_up(token),
            },
            State::Control => match byte {
                0x40..=0x7e => self.control(byte, token),
                0x20..=0x3f if self.held.len() < LONGEST => self.hold(byte, State::Control),
                _ => return self.give_up(token),
            },
            State::Title => match byte {
                ESCAPE => self.state = State::TitleEscape,
                // No title has two lines; this one was never ended.
                b'\n' => return self.give_up(token),
                _ => {
                    token(Token::Other(&[byte]));
                    self.state = if byte == 0x07 { State::Ground } else { State::Title };
                }
            },
            State::TitleEscape if byte == b'\\' => {
                token(Token::Other(b"\x1b\\"));
                self.state = State::Ground;
            }
            State::TitleEscape => {
                self.hold(ESCAPE, State::Escape);
                return false;
            }
        }
        true
    }

    fn begin(&mut self, byte: u8, token: &mut impl FnMut(Token<'_>)) {
        match byte {
            b'\n' => token(Token::Newline),
            b'\r' => token(Token::Return),
            ESCAPE => self.hold(byte, State::Escape),
            0xc2 => self.hold(byte, State::Lead),
            _ => token(Token::Other(&[byte])),
        }
    }

    fn hold(&mut self, byte: u8, state: State) {
        self.held.push(byte);
        self.state = state;
    }

    /// What is held turned out to mean nothing here. Returns that the current byte was not part of it.
    fn give_up(&mut self, token: &mut impl FnMut(Token<'_>)) -> bool {
        match self.state {
            State::Lead => token(Token::Text(&self.held)),
            State::TitleEscape => token(Token::Other(&[ESCAPE])),
            _ if !self.held.is_empty() => token(Token::Other(&self.held)),
            _ => {}
        }
        self.held.clear();
        self.state = State::Ground;
        false
    }

    /// A sequence with parameters is complete.
    fn control(&mut self, last: u8, token: &mut impl FnMut(Token<'_>)) {
        self.held.push(last);
        let parameters = &self.held[2..self.held.len() - 1];
        let number = |otherwise: usize| match std::str::from_utf8(parameters) {
            Ok("") => Some(otherwise),
            Ok(digits) => digits.parse::<usize>().ok(),
            Err(_) => None,
        };
        let whole = Token::Other(&self.held);
        match (last, number(1), number(0)) {
            (b'm', ..) if parameters.iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')) => {
                token(Token::Look(&self.held));
            }
            // Zero counts as one here, as it does in terminals.
            (b'A', Some(lines), _) => token(Token::Up(lines.max(1))),
            (b'B', Some(lines), _) => token(Token::Down(lines.max(1))),
            (b'E', Some(lines), _) => {
                token(Token::Return);
                token(Token::Down(lines.max(1)));
            }
            (b'F', Some(lines), _) => {
                token(Token::Return);
                token(Token::Up(lines.max(1)));
            }
            (b'G', Some(0 | 1), _) => token(Token::Return),
            (b'K', _, Some(0)) => token(Token::Erase { all: false }),
            (b'K', _, Some(2)) => token(Token::Erase { all: true }),
            _ => token(whole),
        }
        self.held.clear();
        self.state = State::Ground;
    }
}

/// Whether a byte is more than text by itself.
fn is_special(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7f || byte == 0xc2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tokens as words, neighbouring texts joined.
    fn words(pieces: &[&[u8]]) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut scanner = Scanner::new();
        let mut token = |token: Token<'_>| {
            let (kind, bytes) = match token {
                Token::Text(bytes) => ("text ", bytes),
                Token::Look(bytes) => ("look ", bytes),
                Token::Other(bytes) => ("other ", bytes),
                simple => return words.push(format!("{simple:?}")),
            };
            let shown = bytes.escape_ascii().to_string();
            match words.last_mut() {
                Some(last) if kind != "look " && last.starts_with(kind) => last.push_str(&shown),
                _ => words.push(format!("{kind}{shown}")),
            }
        };
        pieces.iter().for_each(|piece| scanner.feed(piece, &mut token));
        scanner.finish(&mut token);
        words
    }

    #[test]
    fn sequences_are_told_apart() {
        let cases: [(&[u8], &[&str]); 14] = [
            (b"a\tb\r\nc", &["text a\\tb", "Return", "Newline", "text c"]),
            (b"\x1b[31mred\x1b[m", &["look \\x1b[31m", "text red", "look \\x1b[m"]),
            (b"\x1b[A\x1b[3A\x1b[0B\x1b[2F", &["Up(1)", "Up(3)", "Down(1)", "Return", "Up(2)"]),
            (b"\x1b[K\x1b[2K\x1b[1G", &["Erase { all: false }", "Erase { all: true }", "Return"]),
            (b"\x1b[?25l\x1b[2J\x1b[5;7Hx", &["other \\x1b[?25l\\x1b[2J\\x1b[5;7H", "text x"]),
            (b"\x1b]0;title\x07x", &["other \\x1b]0;title\\x07", "text x"]),
            (b"\x1b]8;;url\x1b\\x", &["other \\x1b]8;;url\\x1b\\\\", "text x"]),
            (b"\x1b]0;never\nx", &["other \\x1b]0;never", "Newline", "text x"]),
            (b"\x1b7\x1b(B\x1bcx", &["other \\x1b7\\x1b(B\\x1bc", "text x"]),
            (b"\x1b[3\nx", &["other \\x1b[3", "Newline", "text x"]),
            (b"\x1b[>4;2mx", &["other \\x1b[>4;2m", "text x"]),
            ("é\u{9b}2J".as_bytes(), &["text \\xc3\\xa9", "other \\xc2\\x9b", "text 2J"]),
            (b"\xc2\xa7\xff\x07\xc2", &["text \\xc2\\xa7\\xff", "other \\x07", "text \\xc2"]),
            (b"\x1b]x\x1b[1m\x1b", &["other \\x1b]x", "look \\x1b[1m", "other \\x1b"]),
        ];
        for (bytes, expected) in cases {
            assert_eq!(words(&[bytes]), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn no_sequence_is_held_for_long() {
        let mut scanner = Scanner::new();
        scanner.feed(b"\x1b[", &mut |_| {});
        scanner.feed(&[b'1'; 10_000], &mut |_| {});
        assert!(scanner.held.capacity() < 10 * LONGEST);
        scanner.feed(b"\x1b]", &mut |_| {});
        scanner.feed(&[b'1'; 10_000], &mut |_| {});
        assert!(scanner.held.capacity() < 10 * LONGEST);
    }

    proptest! {
        #[test]
        fn pieces_mean_what_the_whole_means(
            bytes in prop::collection::vec(prop::sample::select(b"a1;[]m\x1bA\\\x07\r\n\xc2\x9b\xff?K(".to_vec()), 0..60),
            at in any::<prop::sample::Index>(),
        ) {
            let at = at.index(bytes.len() + 1);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(words(&[&bytes]), words(&[&bytes[..at], &bytes[at..]]));
            prop_assert_eq!(words(&[&bytes]), words(&single));
        }
    }
}
