//! The table and the parser agree, and every mistake names the variable, the value and what is allowed.

use super::*;

const HEX: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// A job's environment with some variables changed.
fn with(changes: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    let mut all: Vec<(String, String)> = vec![
        (RANK.into(), "1".into()),
        (SIZE.into(), "4".into()),
        (STORE.into(), "tcp://127.0.0.1:7000".into()),
        (SECRET.into(), HEX.into()),
    ];
    for (name, value) in changes {
        all.retain(|(known, _)| known != name);
        all.push(((*name).into(), (*value).into()));
    }
    move |name| all.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

#[test]
fn a_full_environment_becomes_settings() {
    let get = with(&[
        (TIMEOUT, "2.5"),
        (START_TIMEOUT, "7"),
        (ALGORITHM, "ring"),
        (TLS, "yes"),
        (INTERFACE, "eth0"),
        (SHM, "OFF"),
    ]);
    let Job { rank, size, store, settings } = job(&get).unwrap();
    assert_eq!((rank, size, store.to_string().as_str()), (1, 4, "127.0.0.1:7000"));
    assert_eq!(settings.timeout, Duration::from_millis(2500));
    assert_eq!(settings.start_timeout, Duration::from_secs(7));
    assert_eq!(settings.algorithm, Some(Algorithm::Ring));
    assert!(settings.tls && !settings.shared_memory);
    assert_eq!(settings.interface.as_deref(), Some("eth0"));
}

#[test]
fn what_is_not_set_or_empty_keeps_its_default() {
    let settings = job(&with(&[(TIMEOUT, ""), (ALGORITHM, "auto")])).unwrap().settings;
    assert_eq!(settings.timeout, Settings::new(Secret::from_hex(HEX).unwrap()).timeout);
    assert_eq!(settings.algorithm, None);
    assert!(settings.shared_memory && !settings.tls && settings.interface.is_none());
}

#[test]
fn mistakes_name_the_variable_the_value_and_what_is_allowed() {
    let wrong = [
        (RANK, "4"),
        (RANK, "-1"),
        (SIZE, "0"),
        (STORE, "127.0.0.1:7000"),
        (STORE, "tcp://nowhere"),
        (TIMEOUT, "0"),
        (TIMEOUT, "inf"),
        (START_TIMEOUT, "soon"),
        (ALGORITHM, "rnig"),
        (TLS, "perhaps"),
        (SHM, "2"),
    ];
    for (name, value) in wrong {
        let error = job(&with(&[(name, value)])).unwrap_err();
        assert_eq!(error, EnvError::Bad { name, value: value.into(), allowed: allowed(name) });
        assert_eq!(error.to_string(), format!("{name} is `{value}`, but must be {}", allowed(name)));
    }
}

#[test]
fn a_bad_secret_is_not_repeated() {
    let error = job(&with(&[(SECRET, "hunter2")])).unwrap_err().to_string();
    assert!(!error.contains("hunter2") && error.contains("64 hexadecimal digits"), "{error}");
}

#[test]
fn what_must_be_set_is_asked_for() {
    for name in [RANK, SIZE, STORE, SECRET] {
        assert_eq!(job(&with(&[(name, "")])).unwrap_err(), EnvError::Missing { name, allowed: allowed(name) });
    }
}

#[test]
fn every_variable_is_in_the_table_once() {
    let names = [RANK, SIZE, STORE, SECRET, TIMEOUT, START_TIMEOUT, ALGORITHM, TLS, INTERFACE, SHM];
    assert_eq!(VARIABLES.iter().map(|variable| variable.name).collect::<Vec<_>>(), names);
    for algorithm in Algorithm::ALL {
        assert!(allowed(ALGORITHM).contains(algorithm.name()), "{} is not in the table", algorithm.name());
    }
}

#[test]
fn the_reference_page_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environment.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, reference()).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(page, reference(), "docs/environment.md is old; write it with `cargo xtask docs`");
}
