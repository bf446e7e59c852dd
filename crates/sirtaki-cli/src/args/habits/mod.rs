//! What people type out of habit: options of other launchers, a value without its `=`, a program without `run`.
//!
//! It is read before the parser sees it. A word with one possible meaning is replaced by ours; any other is refused
//! with what to write instead, before a value can be mistaken for the program. Pure: whether a word names a program is
//! passed in.

mod launchers;
#[cfg(test)]
mod tests;

use std::ffi::OsString;

use clap::{Arg, Command};

use self::launchers::Meaning;
use crate::printer::Advice;

/// The commands that start jobs.
const STARTERS: [&str; 2] = ["run", "train"];
/// What others start jobs with.
const LAUNCHERS: [&str; 5] = ["horovodrun", "torchrun", "mpirun", "mpiexec", "srun"];
/// What people switch with.
const SWITCHED: [&str; 8] = ["yes", "no", "true", "false", "on", "off", "1", "0"];

/// The same words, the first of which is ours, as `command` understands them.
pub fn understand(
    mut words: Vec<OsString>,
    command: &Command,
    is_program: &dyn Fn(&str) -> bool,
) -> Result<Vec<OsString>, Advice> {
    let Some(name) = text(&words, 1).map(str::to_owned) else { return Ok(words) };
    let Some(starter) = command.find_subcommand(&name) else {
        missing_command(&words, &name, command, is_program)?;
        return Ok(words);
    };
    if STARTERS.contains(&name.as_str()) {
        Reader { words: &mut words, command: starter, name, is_program }.read()?;
    } else if name == "bench" || name == "infer" {
        let options = words.iter_mut().take_while(|word| *word != "--");
        options.filter(|word| *word == "-np").for_each(|word| *word = "-n".into());
    }
    Ok(words)
}

fn text(words: &[OsString], at: usize) -> Option<&str> {
    words.get(at)?.to_str()
}

/// Refuses a program or an option of `run` where a command belongs. Other mistakes are the parser's.
fn missing_command(
    words: &[OsString],
    first: &str,
    command: &Command,
    is_program: &dyn Fn(&str) -> bool,
) -> Result<(), Advice> {
    let rest: Vec<_> = words[1..].iter().map(|word| word.to_string_lossy()).collect();
    let rest = rest.join(" ");
    let options = command.find_subcommand("run");
    if first == "version" {
        return Err(Advice::new("`version` is not a command of sirtaki", "write `sirtaki --version`"));
    }
    if LAUNCHERS.contains(&first) {
        let hint = format!("write `sirtaki run` in its place: sirtaki run{}", rest.trim_start_matches(first));
        return Err(Advice::new(format!("`{first}` is not a command of sirtaki"), hint));
    }
    if first.starts_with('-') {
        let (name, _) = split(first);
        let known = options.is_some_and(|run| find(run, name).is_some()) || launchers::meaning(name).is_some();
        let ours = ["-h", "--help", "-V", "--version"].contains(&first);
        return match known && !ours {
            true => Err(Advice::new(
                format!("`{first}` is an option of a command, and there is no command before it"),
                format!("write `sirtaki run {rest}`"),
            )),
            false => Ok(()),
        };
    }
    if first != "help" && (is_program(first) || first.contains([' ', '/']) || first.ends_with(".py")) {
        let start = if first.ends_with(".py") { "python " } else { "" };
        let hint = format!("to run a program on 2 processes, write `sirtaki run -n 2 -- {start}{rest}`");
        return Err(Advice::new(format!("`{first}` is not a command of sirtaki"), hint));
    }
    Ok(())
}

/// `--name=value` in two parts; `-np=4` as well.
fn split(word: &str) -> (&str, Option<&str>) {
    word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)))
}

/// The option that a word such as `--tls`, `-n` or `-n4` names.
fn find<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let long = name.strip_prefix("--");
    let short = name.strip_prefix('-').and_then(|rest| rest.chars().next()).filter(|_| long.is_none());
    command.get_arguments().find(|option| match long {
        Some(long) => option.get_long() == Some(long),
        None => short.is_some() && option.get_short() == short,
    })
}

/// How an option takes its value.
enum Value {
    None,
    /// In the next word, unless it is part of this one.
    Next,
    /// After `=` alone, if at all.
    AfterEquals,
}

fn value_of(option: &Arg) -> Value {
    match (option.get_action().takes_values(), option.is_require_equals_set()) {
        (false, _) => Value::None,
        (true, true) => Value::AfterEquals,
        (true, false) => Value::Next,
    }
}

/// Goes through the options of a command that starts a job, up to the program.
struct Reader<'a> {
    words: &'a mut Vec<OsString>,
    command: &'a Command,
    name: String,
    is_program: &'a dyn Fn(&str) -> bool,
}

impl Reader<'_> {
    fn read(mut self) -> Result<(), Advice> {
        let mut at = 2;
        while let Some(word) = text(self.words, at).map(str::to_owned) {
            if word == "--" {
                return self.check_program(at + 1);
            }
            if !word.starts_with('-') || word == "-" {
                self.check_place(at, &word)?;
                return self.check_program(at);
            }
            at = self.option(at, &word)?;
        }
        Ok(())
    }

    /// Reads one option; gives the place of the next.
    fn option(&mut self, at: usize, word: &str) -> Result<usize, Advice> {
        let (name, value) = split(word);
        let exact = |_: &&Arg| name.starts_with("--") || name.len() == 2 || !launchers::is_known(name);
        if let Some(option) = find(self.command, name).filter(exact) {
            let attached = value.is_some() || !name.starts_with("--") && name.len() > 2;
            return match value_of(option) {
                Value::Next if !attached => {
                    self.check_value(option, at + 1)?;
                    Ok(at + 2)
                }
                Value::AfterEquals if !attached => {
                    self.check_next(option, at + 1)?;
                    Ok(at + 1)
                }
                _ => Ok(at + 1),
            };
        }
        let Some(meaning) = launchers::meaning(name) else { return Ok(at + 1) };
        let given = value.map(str::to_owned).or_else(|| text(self.words, at + 1).map(str::to_owned));
        let taken = if value.is_some() { 1 } else { 2 };
        match meaning {
            Meaning::Ours(ours) => self.replace(at, taken, ours, given),
            Meaning::Ranks => {
                self.check_ranks(name, given.as_deref())?;
                self.replace(at, taken, "--ranks", given)
            }
            Meaning::Needless => {
                self.words.remove(at);
                Ok(at)
            }
            Meaning::Nodes if matches!(given.as_deref(), Some("1" | "1:1")) => {
                self.words.drain(at..at + taken);
                Ok(at)
            }
            Meaning::Nodes if given.as_deref().is_some_and(|hosts| hosts.contains(':')) => {
                Err(foreign(name, launchers::RANGE))
            }
            Meaning::Nodes => Err(foreign(name, launchers::ONCE)),
            Meaning::Cooldown => {
                let longest = text(self.words, at + taken).unwrap_or_default().to_owned();
                self.replace(at, taken + 1, "--cooldown", given.map(|shortest| format!("{shortest},{longest}")))
            }
            Meaning::Instead(hint) => Err(foreign(name, hint)),
        }
    }

    fn replace(&mut self, at: usize, taken: usize, ours: &str, value: Option<String>) -> Result<usize, Advice> {
        let with = value.map_or(ours.to_owned(), |value| format!("{ours}={value}"));
        let end = (at + taken).min(self.words.len());
        self.words.splice(at..end, [OsString::from(with)]);
        Ok(at + 1)
    }

    /// Refuses what is not a number, and a number per host where there are several hosts.
    fn check_ranks(&self, name: &str, value: Option<&str>) -> Result<(), Advice> {
        if let Some(word @ ("gpu" | "auto" | "cpu" | "xpu")) = value {
            let hint = "write the number, such as `-n 4`; `sirtaki doctor` shows how many cores and GPUs there are";
            return Err(Advice::new(format!("`{name} {word}`: sirtaki needs the number of processes itself"), hint));
        }
        let hosts = |word: &OsString| {
            word.to_str().is_some_and(|word| ["-H", "--hosts", "--hostfile"].iter().any(|name| word.starts_with(name)))
        };
        if name.contains("per") && self.words.iter().take_while(|word| *word != "--").any(hosts) {
            let hint = "give each host its number of processes instead: -H a:4,b:4, or `a slots=4` in a host file";
            return Err(Advice::new(format!("`{name}` counts per host, and hosts have slots of their own"), hint));
        }
        Ok(())
    }

    /// Refuses a program in the place of a file, and a number of GPUs.
    fn check_value(&self, option: &Arg, at: usize) -> Result<(), Advice> {
        let file = option.get_long().is_some_and(|name| ["timeline", "output"].contains(&name));
        match text(self.words, at) {
            Some(word) if option.get_long() == Some("gpus") && word.parse::<usize>().is_ok() => {
                let hint = format!("for {word} processes, write -n {word}");
                Err(Advice::new("--gpus says which GPUs a process sees: auto, own or none", hint))
            }
            Some(word) if file && !word.contains(['.', '/']) && (self.is_program)(word) => {
                let name = format!("--{}", option.get_long().unwrap_or_default());
                let hint = format!("name a file before the program, such as {name} trace.json");
                Err(Advice::new(format!("{name} needs a file, and `{word}` is a program"), hint))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a word after an option whose value follows `=`, if it can only be meant as that value.
    fn check_next(&self, option: &Arg, at: usize) -> Result<(), Advice> {
        let Some(word) = text(self.words, at).filter(|word| !word.starts_with('-')) else { return Ok(()) };
        let kind = option.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        let number = word.bytes().all(|byte| byte.is_ascii_digit());
        let path = kind != "BOOL" && word.contains(['.', '/']) && !word.ends_with(".py") && !(self.is_program)(word);
        let before_program = text(self.words, at + 1) == Some("--");
        if SWITCHED.contains(&word) || number || path || before_program {
            let name = option.get_long().unwrap_or_default();
            let hint = match (self.is_program)(word) {
                true => format!("write --{name}={word}, or `-- {word}` if that is the program"),
                false => format!("write --{name}={word}"),
            };
            return Err(Advice::new(format!("the value of --{name} follows it after `=`, not after a space"), hint));
        }
        Ok(())
    }

    /// Refuses a word that is neither an option nor, because `--` follows it, the program.
    fn check_place(&self, at: usize, word: &str) -> Result<(), Advice> {
        if self.name != "run" || text(self.words, at + 1) != Some("--") {
            return Ok(());
        }
        let hint = "options come first, then `--`, then the program; hosts are separated by commas, such as -H a:4,b:4";
        Err(Advice::new(format!("`{word}` is neither an option nor the value of one"), hint))
    }

    /// Refuses a program that is a whole line.
    fn check_program(&self, at: usize) -> Result<(), Advice> {
        match text(self.words, at) {
            Some(word) if word.contains(' ') && !(self.is_program)(word) => {
                let hint = format!("omit the quotes: sirtaki run ... -- {word}");
                Err(Advice::new(format!("there is no program called `{word}`"), hint))
            }
            _ => Ok(()),
        }
    }
}

fn foreign(name: &str, hint: &str) -> Advice {
    Advice::new(format!("sirtaki has no option `{name}`"), hint)
}
