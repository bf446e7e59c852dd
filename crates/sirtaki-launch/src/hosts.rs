//! Hosts and how many ranks each may have: from `-H` and from host files.
//!
//! Names end up in the arguments of `ssh` and of schedulers' tools, so only valid names are accepted: nothing that
//! begins with `-` or has a special meaning to a shell.

use std::path::Path;

use crate::Advice;

/// Most ranks of one host, and most hosts of a job; more is a typing error.
pub const MOST: usize = 65_536;

const LIST_HINT: &str = "write HOST:SLOTS, separated by commas, such as -H a:4,user@b:4 or -H '[fd00::1]:4'";
const FILE_HINT: &str = "write one host per line, such as `a slots=4` or `a:4`; `#` begins a comment";

/// A host and its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSlots {
    /// Its name or address as typed, without brackets, with `user@` if that was given.
    pub host: String,
    /// How many ranks it may have.
    pub slots: usize,
}

/// The hosts of `a:4,user@b:2,[fd00::1]:4,c`; without a number a host has one slot.
pub fn parse_list(text: &str) -> Result<Vec<HostSlots>, Advice> {
    let hint = |item: &str| match item.parse::<usize>() {
        Ok(number) => format!("did you mean -n {number}?"),
        Err(_) => LIST_HINT.into(),
    };
    let parse = |item: &str| parse_item(item.trim()).map_err(|problem| Advice::new(problem, hint(item.trim())));
    collect(text.split(',').map(parse)).and_then(|hosts| at_least_one(hosts, "the list of hosts", LIST_HINT))
}

/// The hosts of a host file, one per line.
pub fn parse_file(path: &Path, text: &str) -> Result<Vec<HostSlots>, Advice> {
    let lines = text.lines().enumerate().filter_map(|(number, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        (!line.is_empty()).then(|| {
            parse_line(line)
                .map_err(|problem| Advice::new(format!("{}:{}: {problem}", path.display(), number + 1), FILE_HINT))
        })
    });
    at_least_one(collect(lines)?, &path.display().to_string(), FILE_HINT)
}

/// A host that is named again gets more slots, at its first position.
pub fn collect<E>(hosts: impl Iterator<Item = Result<HostSlots, E>>) -> Result<Vec<HostSlots>, E> {
    let mut all: Vec<HostSlots> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for host in hosts {
        let host = host?;
        match places.get(&host.host) {
            Some(&place) => {
                let known: &mut HostSlots = &mut all[place];
                known.slots = known.slots.saturating_add(host.slots);
            }
            None => {
                places.insert(host.host.clone(), all.len());
                all.push(host);
            }
        }
    }
    Ok(all)
}

/// Whether `name` can be the name or the address of a host, perhaps with a user before it.
pub fn is_name(name: &str) -> bool {
    let (user, host) = name.split_once('@').map_or((None, name), |(user, host)| (Some(user), host));
    let plain = |text: &str| {
        let mut bytes = text.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let address = host.split('%').next().is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    let zone = host.split_once('%').is_none_or(|(_, zone)| plain(zone));
    user.is_none_or(plain) && (plain(host) || address && zone)
}

fn at_least_one(hosts: Vec<HostSlots>, source: &str, hint: &str) -> Result<Vec<HostSlots>, Advice> {
    match hosts.len() {
        0 => Err(Advice::new(format!("{source} names no host"), hint)),
        count if count > MOST => {
            Err(Advice::new(format!("{source} names {count} hosts; at most {MOST} can be used"), hint))
        }
        _ => Ok(hosts),
    }
}

/// `a`, `a:4`, `user@a:4` or `[fd00::1]:4`.
fn parse_item(item: &str) -> Result<HostSlots, String> {
    let (user, rest) = item.rsplit_once('@').map_or(("", item), |(user, rest)| (user, rest));
    let (host, slots) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']').ok_or(format!("`{item}` has no closing bracket"))?;
            let slots = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or(format!("`{item}` is not the name of a host"))?),
            };
            (address, slots)
        }
        None if rest.matches(':').count() > 1 => {
            return Err(format!("`{item}` is ambiguous: an IPv6 address belongs in brackets"));
        }
        None => rest.split_once(':').map_or((rest, None), |(host, slots)| (host, Some(slots))),
    };
    let name = if item.contains('@') { format!("{user}@{host}") } else { host.to_owned() };
    if slots.is_none() && !host.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("`{item}` is a number, not a host"));
    }
    if !is_name(&name) {
        return Err(format!("`{item}` is not the name of a host"));
    }
    Ok(HostSlots { host: name, slots: slots.map_or(Ok(1), number)? })
}

/// A line without comments: a host as in a list, then perhaps `slots=4`.
fn parse_line(line: &str) -> Result<HostSlots, String> {
    let mut words = line.split_whitespace();
    let item = words.next().unwrap_or_default();
    let mut host = parse_item(item)?;
    if let Some(word) = words.next() {
        let slots = word.strip_prefix("slots=").ok_or(format!("`{word}` is not understood"))?;
        if item.rsplit(']').next().is_some_and(|end| end.contains(':')) {
            return Err(format!("`{line}` gives the slots twice"));
        }
        host.slots = number(slots)?;
    }
    match words.next() {
        Some(word) => Err(format!("`{word}` is not understood")),
        None => Ok(host),
    }
}

/// A number of slots.
pub fn number(text: &str) -> Result<usize, String> {
    let slots = text.parse().ok().filter(|slots| (1..=MOST).contains(slots));
    slots.ok_or_else(|| format!("`{text}` is not a number of slots; it must be from 1 to {MOST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(hosts: Vec<HostSlots>) -> Vec<(String, usize)> {
        hosts.into_iter().map(|host| (host.host, host.slots)).collect()
    }

    fn list(text: &str) -> Vec<(String, usize)> {
        pairs(parse_list(text).unwrap())
    }

    fn owned(pairs: &[(&str, usize)]) -> Vec<(String, usize)> {
        pairs.iter().map(|&(host, slots)| (host.into(), slots)).collect()
    }

    #[test]
    fn lists_of_all_kinds() {
        assert_eq!(list("a:4,b"), owned(&[("a", 4), ("b", 1)]));
        assert_eq!(list("me@a.example.org:2"), owned(&[("me@a.example.org", 2)]));
        assert_eq!(list("[fd00::1]:4, [::1],10.0.0.1:2"), owned(&[("fd00::1", 4), ("::1", 1), ("10.0.0.1", 2)]));
        assert_eq!(list("me@[fe80::1%eth0]:3"), owned(&[("me@fe80::1%eth0", 3)]));
        assert_eq!(list("a:1,b:2,a:3"), owned(&[("a", 4), ("b", 2)]), "a host named twice adds up, in its first place");
    }

    #[test]
    fn what_is_no_host_is_refused_with_its_name() {
        for wrong in ["", "a,,b", "-oProxyCommand=x", "a b", "a;reboot", "$(x)", "a:b@c", "a/b", "[::1"] {
            let advice = parse_list(wrong).unwrap_err();
            assert!(advice.message.contains('`') && advice.hint.contains("-H"), "{wrong}: {advice:?}");
        }
        assert_eq!(parse_list("4").unwrap_err().hint, "did you mean -n 4?");
        assert!(parse_list("fd00::1:4").unwrap_err().message.contains("brackets"));
        for wrong in ["a:0", "a:-1", "a:x", "a:", "a:99999999999999999999", "a:65537"] {
            assert!(parse_list(wrong).unwrap_err().message.contains("slots"), "{wrong}");
        }
    }

    #[test]
    fn host_files() {
        let text = "# two kinds of line\n\na slots=4   # the first\nb:2\r\n me@c\na\n[fd00::1]:2\n[::1] slots=3\n";
        let expected = owned(&[("a", 5), ("b", 2), ("me@c", 1), ("fd00::1", 2), ("::1", 3)]);
        assert_eq!(pairs(parse_file(Path::new("hosts"), text).unwrap()), expected);
    }

    #[test]
    fn mistakes_in_a_host_file_name_file_and_line() {
        let message = |text| parse_file(Path::new("my/hosts"), text).unwrap_err().message;
        assert_eq!(message("a\n\nb slots=x"), "my/hosts:3: `x` is not a number of slots; it must be from 1 to 65536");
        assert_eq!(message("a gpus=2"), "my/hosts:1: `gpus=2` is not understood");
        assert_eq!(message("a:2 slots=2"), "my/hosts:1: `a:2 slots=2` gives the slots twice");
        assert_eq!(message("a slots=2 b"), "my/hosts:1: `b` is not understood");
        assert_eq!(message("# nobody\n"), "my/hosts names no host");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,64}") {
            let _ = parse_list(&text);
            let _ = parse_file(Path::new("hosts"), &text);
        }

        #[test]
        fn names_that_pass_are_harmless_in_an_argument(text in "[-a-z0-9@:.%_$;' ]{1,12}") {
            if is_name(&text) {
                assert!(!text.starts_with('-') && !text.contains(['$', ';', '\'', ' ']));
            }
        }
    }
}
