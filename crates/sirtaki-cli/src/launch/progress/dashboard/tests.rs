//! The page as browsers and others ask for it, over real connections.

use std::{
    io::{Read, Write},
    time::Instant,
};

use super::*;

/// Sends this and reads everything that comes.
fn send(dashboard: &Dashboard, request: &str) -> String {
    let mut stream = TcpStream::connect(dashboard.address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn get(dashboard: &Dashboard, path: &str) -> String {
    send(dashboard, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", dashboard.address))
}

#[test]
fn the_page_is_there_for_those_who_know_the_address() {
    let dashboard = Dashboard::start(None, Shown::Job).unwrap();
    assert!(dashboard.address.ip().is_loopback());
    let base = format!("/{}/", dashboard.served.token());
    assert_eq!(dashboard.url(), format!("http://{}{base}", dashboard.address));
    dashboard.show("{\"now\":null}".into());
    let page = get(&dashboard, &base);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("Content-Security-Policy: default-src 'none'"));
    assert!(page.ends_with("</html>\n"), "{page}");
    for (name, kind) in [("page.js", "text/javascript"), ("page.css", "text/css"), ("data", "application/json")] {
        let answer = get(&dashboard, &format!("{base}{name}"));
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(&format!("Content-Type: {kind};")), "{answer}");
    }
    assert!(get(&dashboard, &format!("{base}data")).ends_with("\r\n\r\n{\"now\":null}"));
    let refused = get(&dashboard, "/00000000000000000000000000000000/data");
    assert!(refused.starts_with("HTTP/1.1 403 ") && !refused.contains("now"), "{refused}");
    let rebound = format!("GET {base}data HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(send(&dashboard, &rebound).starts_with("HTTP/1.1 403 "));
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    for text in [include_str!("page.html"), include_str!("page.js"), include_str!("page.css")] {
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "").contains("//");
        assert!(!elsewhere, "an address of another site, or a comment that looks like one");
        assert!(!text.contains("innerHTML"), "text could become markup");
    }
}

#[test]
fn malformed_long_and_slow_requests_do_no_harm() {
    let dashboard = Dashboard::start(None, Shown::Job).unwrap();
    assert!(send(&dashboard, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(http::LONGEST));
    assert!(send(&dashboard, &long).starts_with("HTTP/1.1 431 "));
    // A client that asks one letter at a time, or never, does not hold up others, and is disconnected in the end.
    let mut slow = TcpStream::connect(dashboard.address).unwrap();
    slow.write_all(b"GET ").unwrap();
    assert!(get(&dashboard, "/").starts_with("HTTP/1.1 403 "));
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn only_so_many_are_answered_at_a_time() {
    let dashboard = Dashboard::start(None, Shown::Job).unwrap();
    let idle: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(dashboard.address).unwrap()).collect();
    let mut last = idle.last().unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

#[test]
fn a_port_that_is_taken_is_an_error_with_advice() {
    let first = Dashboard::start(None, Shown::Job).unwrap();
    let error = Dashboard::start(Some(first.address.port()), Shown::Job).unwrap_err();
    assert!(error.to_string().contains(&first.address.to_string()), "{error}");
    assert!(crate::printer::hint(&error).unwrap().contains("--dashboard"));
    let address = first.address;
    drop(first);
    assert!(TcpStream::connect(address).is_err(), "it is gone");
}

#[test]
fn the_end_waits_for_a_page_that_is_looked_at_and_for_nobody_else() {
    let unseen = Dashboard::start(None, Shown::Job).unwrap();
    let start = Instant::now();
    unseen.finish();
    assert!(start.elapsed() < FAREWELL, "nobody looks");
    let dashboard = Dashboard::start(None, Shown::Job).unwrap();
    let (path, served) = (format!("/{}/data", dashboard.served.token()), dashboard.served.clone());
    get(&dashboard, &path);
    dashboard.show("the end".into());
    let (address, request) = (dashboard.address, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let page = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    served.await_last_look(Duration::from_secs(60));
    assert!(page.join().unwrap().ends_with("the end"));
    dashboard.finish();
}
