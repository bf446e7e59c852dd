//! Slurm's short forms: lists of nodes such as `n[1-3,07-09]-ib,m5`, and counts such as `2(x3),1`.
//!
//! Expanded here rather than by `scontrol show hostnames`: no process to start, no tool to find, and a list that would
//! not fit into memory is refused before it is made.

use super::hosts::MOST;

/// The nodes of a list, in its order.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut nodes = Vec::new();
    for item in split(list)? {
        let mut names = vec![String::new()];
        let mut rest = item;
        while let Some((before, after)) = rest.split_once('[') {
            let (ranges, after) = after.split_once(']').ok_or(format!("`{item}` has no closing bracket"))?;
            let numbers = numbers(ranges)?;
            check(nodes.len() + names.len().saturating_mul(numbers.len()))?;
            names = names.iter().flat_map(|name| numbers.iter().map(move |n| format!("{name}{before}{n}"))).collect();
            rest = after;
        }
        names.iter_mut().for_each(|name| name.push_str(rest));
        check(nodes.len() + names.len())?;
        nodes.append(&mut names);
    }
    match nodes.iter().find(|node| !super::hosts::is_name(node)) {
        Some(node) => Err(format!("`{node}` is not the name of a node")),
        None => Ok(nodes),
    }
}

/// The counts per node of `2(x3),1`: 2, 2, 2, 1.
pub fn counts(list: &str) -> Result<Vec<usize>, String> {
    let mut all = Vec::new();
    for item in list.split(',') {
        let bad = || format!("`{item}` is not a number of tasks");
        let (count, times) = match item.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')').ok_or_else(bad)?),
            None => (item, "1"),
        };
        let number = |text: &str| text.parse().ok().filter(|&number: &usize| (1..=MOST).contains(&number));
        let (count, times) = (number(count).ok_or_else(bad)?, number(times).ok_or_else(bad)?);
        check(all.len() + times)?;
        all.extend(std::iter::repeat_n(count, times));
    }
    Ok(all)
}

/// Splits at the commas outside brackets.
fn split(list: &str) -> Result<Vec<&str>, String> {
    let (mut items, mut begin, mut inside) = (Vec::new(), 0, false);
    for (position, byte) in list.bytes().enumerate() {
        match (byte, inside) {
            (b'[', false) => inside = true,
            (b']', true) => inside = false,
            (b'[' | b']', _) => return Err(format!("`{list}` has brackets that do not match")),
            (b',', false) => {
                items.push(&list[begin..position]);
                begin = position + 1;
            }
            _ => {}
        }
    }
    items.push(&list[begin..]);
    Ok(items)
}

/// The numbers of `1-3,07-09`, with their leading zeros.
fn numbers(ranges: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let bad = || format!("`{range}` is not a range of numbers");
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= 18 {
            true => text.parse::<u64>().ok(),
            false => None,
        };
        let (from, to) = (number(first).ok_or_else(bad)?, number(last).ok_or_else(bad)?);
        if from > to {
            return Err(bad());
        }
        check((all.len() as u64).saturating_add(to - from).saturating_add(1).try_into().unwrap_or(usize::MAX))?;
        all.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Ok(all)
}

fn check(count: usize) -> Result<(), String> {
    if count > MOST { Err(format!("more than {MOST} nodes")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expanded(list: &str) -> String {
        expand(list).unwrap().join(" ")
    }

    #[test]
    fn lists_as_slurm_writes_them() {
        assert_eq!(expanded("n1"), "n1");
        assert_eq!(expanded("n[1-3,07-09],m5"), "n1 n2 n3 n07 n08 n09 m5");
        assert_eq!(expanded("n[098-101]"), "n098 n099 n100 n101");
        assert_eq!(expanded("r[1-2]n[1,3]-ib"), "r1n1-ib r1n3-ib r2n1-ib r2n3-ib");
        assert_eq!(expanded("gpu-a-[3].cluster,x"), "gpu-a-3.cluster x");
    }

    #[test]
    fn counts_as_slurm_writes_them() {
        assert_eq!(counts("2(x3),1").unwrap(), [2, 2, 2, 1]);
        assert_eq!(counts("4").unwrap(), [4]);
        for wrong in ["", "0", "2(x)", "2(x3", "2(x0)", "a", "1,", "1(x999999999)", "99999999999999999999"] {
            assert!(counts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wrong_lists_are_refused() {
        for wrong in ["", "n[1-3", "n1-3]", "n[3-1]", "n[a-b]", "n[]", "n[[1]]", "n[1]]", "a,,b", "n[-1]", "a b", "-x"]
        {
            assert!(expand(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_list_that_would_not_fit_is_refused_before_it_is_made() {
        for huge in ["n[1-1000000000]", "n[1-60000]x[1-60000]", "n[0-99999999999999999]", "n[1-40000],m[1-40000]"] {
            assert_eq!(expand(huge).unwrap_err(), "more than 65536 nodes", "{huge}");
        }
        assert!(expand("n[1-999999999999999999999]").is_err());
        assert_eq!(expand("n[1-65536]").unwrap().len(), MOST);
    }

    proptest! {
        #[test]
        fn a_range_is_all_its_numbers(from in 0..2000u64, count in 1..300u64, width in 1..6usize) {
            let list = format!("n[{from:0width$}-{:0width$}]s", from + count - 1);
            let plain: Vec<_> = (from..from + count).map(|number| format!("n{number:0width$}s")).collect();
            prop_assert_eq!(expand(&list).unwrap(), plain);
        }

        #[test]
        fn brackets_multiply_and_commas_add(a in 1..20usize, b in 1..20usize, c in 1..20usize) {
            let nodes = expand(&format!("x[1-{a}]y[1-{b}],z[1-{c}]")).unwrap();
            let distinct: std::collections::HashSet<_> = nodes.iter().collect();
            prop_assert_eq!((nodes.len(), distinct.len()), (a * b + c, a * b + c));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[n0-9,x()\\[\\]-]{0,40}") {
            let _ = expand(&text);
            let _ = counts(&text);
        }
    }
}
