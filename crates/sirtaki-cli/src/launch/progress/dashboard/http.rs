//! What a request asks for, and whether that is allowed. Pure: bytes in, an answer out.
//!
//! A token in the path keeps other users of the machine out. A page of another site cannot know it; nor can it read
//! answers by pointing its own name to this address (DNS rebinding), because only requests to names of this machine are
//! answered.

/// Most bytes of a request.
pub(super) const LONGEST: usize = 8 << 10;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Page,
    Script,
    Look,
    Data,
}

/// Why it is refused: a status code and its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused(pub(super) u16, pub(super) &'static str);

pub(super) const TOO_LONG: Refused = Refused(431, "Request Header Fields Too Large");
pub(super) const TOO_SLOW: Refused = Refused(408, "Request Timeout");
pub(super) const TOO_MANY: Refused = Refused(503, "Service Unavailable");
const MALFORMED: Refused = Refused(400, "Bad Request");
const FORBIDDEN: Refused = Refused(403, "Forbidden");
const NOT_FOUND: Refused = Refused(404, "Not Found");
const NOT_ALLOWED: Refused = Refused(405, "Method Not Allowed");

/// What the head of a request asks for.
pub(super) fn asked(head: &[u8], token: &str) -> Result<Asked, Refused> {
    let head = std::str::from_utf8(head).map_err(|_| MALFORMED)?;
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, path, "HTTP/1.1" | "HTTP/1.0"] = words[..] else { return Err(MALFORMED) };
    let is_host =
        |(name, value): (&'_ str, &'_ str)| name.eq_ignore_ascii_case("host").then(|| value.trim().to_owned());
    let hosts: Vec<String> = lines.filter_map(|line| line.split_once(':')).filter_map(is_host).collect();
    let [host] = &hosts[..] else { return Err(MALFORMED) };
    if !is_here(host) {
        return Err(FORBIDDEN);
    }
    let (given, name) = path.strip_prefix('/').ok_or(MALFORMED)?.split_once('/').ok_or(FORBIDDEN)?;
    if !same(given.as_bytes(), token.as_bytes()) {
        return Err(FORBIDDEN);
    }
    if method != "GET" {
        return Err(NOT_ALLOWED);
    }
    match name {
        "" => Ok(Asked::Page),
        "page.js" => Ok(Asked::Script),
        "page.css" => Ok(Asked::Look),
        "data" => Ok(Asked::Data),
        _ => Err(NOT_FOUND),
    }
}

/// Whether a name is one by which this machine calls itself. The port may differ: ssh may forward it.
fn is_here(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Compares in a time that depends only on the lengths, so that a token cannot be guessed letter by letter.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (one, other)| std::hint::black_box(all | (one ^ other)));
    one.len() == other.len() && differences == 0
}

/// The head of an answer with a body of this length.
pub(super) fn head(status: Refused, kind: &str, length: usize) -> String {
    let Refused(code, words) = status;
    format!(
        "HTTP/1.1 {code} {words}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {length}\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn ask(first: &str, host: &str) -> Result<Asked, Refused> {
        asked(format!("{first}\r\nHost: {host}\r\nAccept: */*").as_bytes(), TOKEN)
    }

    #[test]
    fn whoever_knows_the_token_gets_the_page() {
        let get = |path: &str| ask(&format!("GET {path} HTTP/1.1"), "127.0.0.1:4000");
        assert_eq!(get("/0123456789abcdef/"), Ok(Asked::Page));
        assert_eq!(get("/0123456789abcdef/data"), Ok(Asked::Data));
        assert_eq!(get("/0123456789abcdef/other"), Err(NOT_FOUND));
        for path in ["/", "//", "/data", "/0123456789abcdef", "/0123456789abcdee/", "/0123456789abcdef0/", "/x/data"] {
            assert_eq!(get(path), Err(FORBIDDEN), "{path}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_answered_to() {
        let get = |host: &str| ask("GET /0123456789abcdef/ HTTP/1.1", host);
        for host in ["127.0.0.1:80", "localhost", "LOCALHOST:8080", "[::1]:80", "127.0.0.1"] {
            assert_eq!(get(host), Ok(Asked::Page), "{host}");
        }
        for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost:80.evil", "", "[::2]:80"] {
            assert_eq!(get(host), Err(FORBIDDEN), "{host}");
        }
        assert_eq!(asked(b"GET /0123456789abcdef/ HTTP/1.1\r\nAccept: x", TOKEN), Err(MALFORMED), "no host");
        assert_eq!(get("localhost\r\nhost: evil.example"), Err(MALFORMED), "two hosts");
    }

    #[test]
    fn other_requests_are_refused() {
        let host = "localhost:1";
        assert_eq!(ask("POST /0123456789abcdef/data HTTP/1.1", host), Err(NOT_ALLOWED));
        for first in ["", "GET", "GET /", "GET / HTTP/2", "GET  / HTTP/1.1", "GET 0123456789abcdef/ HTTP/1.1"] {
            assert_eq!(ask(first, host), Err(MALFORMED), "{first}");
        }
        assert_eq!(asked(b"\xff\xfe", TOKEN), Err(MALFORMED));
    }

    proptest! {
        #[test]
        fn nothing_is_given_to_strangers(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(asked(&bytes, TOKEN).is_err());
        }
    }
}
