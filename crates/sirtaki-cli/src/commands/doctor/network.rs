//! Network interfaces: state, speed and addresses.

use std::fs;

use if_addrs::Interface;

use super::finding::Finding;

/// One line per interface, loopback first.
pub(crate) fn examine() -> Vec<Finding> {
    let addresses = if_addrs::get_if_addrs().unwrap_or_default();
    let mut names = match fs::read_dir("/sys/class/net") {
        Ok(folder) => folder.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect(),
        Err(_) => addresses.iter().map(|interface| interface.name.clone()).collect::<Vec<String>>(),
    };
    names.sort_by_key(|name| (name != "lo", name.clone()));
    names.dedup();
    names.iter().map(|name| interface(name, &addresses)).collect()
}

fn interface(name: &str, addresses: &[Interface]) -> Finding {
    let read = |file: &str| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).unwrap_or_default();
    let mine = addresses.iter().filter(|address| address.name == name);
    let mut words: Vec<String> = mine.map(|address| address.ip().to_string()).collect();
    let reachable = !words.is_empty();
    if !reachable {
        words.push("no address".into());
    }
    words.extend(speed(&read("speed")));
    let mtu = read("mtu");
    if !mtu.trim().is_empty() {
        words.push(format!("MTU {}", mtu.trim()));
    }
    let title = format!("interface {name}");
    if read("operstate").trim() == "down" {
        return Finding::absent(title, format!("down, {}", words.join(", ")));
    }
    if reachable { Finding::ok(title, words.join(", ")) } else { Finding::absent(title, words.join(", ")) }
}

/// The kernel's Mbit/s for people. Virtual interfaces have no speed: the file is empty or says -1.
fn speed(text: &str) -> Option<String> {
    let speed: i64 = text.trim().parse().ok().filter(|&speed| speed > 0)?;
    Some(if speed >= 1000 { format!("{} Gbit/s", speed as f64 / 1000.0) } else { format!("{speed} Mbit/s") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_for_people() {
        let shown = ["-1\n", "", "100\n", "2500\n", "100000\n"].map(speed);
        let expected = [None, None, Some("100 Mbit/s"), Some("2.5 Gbit/s"), Some("100 Gbit/s")];
        assert_eq!(shown, expected.map(|text| text.map(str::to_owned)));
    }
}
