//! A person in front of a page: Chromium, driven through its own driver, that moves a real pointer and presses real keys.
//!
//! The driver speaks HTTP with JSON on a port of this machine; a dozen lines are enough for that.

use std::{
    io::{BufRead, BufReader, Read, Result, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::{ARGUMENTS, base64};

/// How long the browser may take for anything, on the slowest and busiest machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A browser with one page.
#[derive(Debug)]
pub struct Driver {
    process: Child,
    port: u16,
    session: String,
    profile: TempDir,
}

impl Driver {
    /// A window of this size that shows a page.
    pub fn open(page: &Path, (width, height): (u32, u32)) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver can be started");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(std::result::Result::ok);
        let port =
            lines.find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok());
        let mut driver = Self { process, port: port.expect("it says its port"), session: String::new(), profile };
        // Nobody reads what else it says, and a full pipe must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        let mut arguments: Vec<String> = ARGUMENTS.iter().map(|&argument| argument.to_owned()).collect();
        arguments.push(format!("--user-data-dir={}", driver.profile.path().display()));
        arguments.push(format!("--window-size={width},{height}"));
        let options = json!({ "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" } });
        let begun = driver.call("POST", "/session", &json!({ "capabilities": { "alwaysMatch": options } })).unwrap();
        driver.session = begun["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {begun}")).to_owned();
        driver.ask("url", &json!({ "url": format!("file://{}", page.display()) }));
        driver
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let (body, host) = (body.to_string(), format!("127.0.0.1:{}", self.port));
        let mut stream = TcpStream::connect(&host)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n")?;
        write!(stream, "Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")?;
        let (mut reader, mut line, mut length) = (BufReader::new(stream), String::new(), 0);
        while reader.read_line(&mut line)? > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer)?;
        Ok(serde_json::from_slice::<Value>(&answer)?["value"].take())
    }

    /// What the browser answers to a command of the WebDriver protocol.
    fn ask(&self, command: &str, body: &Value) -> Value {
        let answer = self.call("POST", &format!("/session/{}/{command}", self.session), body).unwrap();
        assert!(answer.get("error").is_none(), "{command}: {answer}");
        answer
    }

    /// What a function of the page's language returns.
    pub fn see(&self, script: &str) -> Value {
        self.ask("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Moves the pointer to places of the window, presses at those that are `true`, and lets go at those that are not.
    pub fn point(&self, places: &[(f64, f64, bool)]) {
        let mut pressed = false;
        let mut actions = Vec::new();
        for &(x, y, press) in places {
            let (x, y) = (x.round(), y.round());
            actions.push(json!({ "type": "pointerMove", "duration": 0, "x": x as i64, "y": y as i64 }));
            if press != pressed {
                actions.push(json!({ "type": if press { "pointerDown" } else { "pointerUp" }, "button": 0 }));
                pressed = press;
            }
        }
        let mouse = json!({ "type": "pointer", "id": "mouse", "actions": actions });
        self.ask("actions", &json!({ "actions": [mouse] }));
    }

    /// Clicks twice.
    pub fn double_click(&self, (x, y): (f64, f64)) {
        self.point(&[(x, y, true), (x, y, false), (x, y, true), (x, y, false)]);
    }

    /// Presses keys, one after the other; WebDriver has letters of its own for those without one.
    pub fn press(&self, keys: &str) {
        let strokes =
            keys.chars().flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })));
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes.collect::<Vec<_>>() });
        self.ask("actions", &json!({ "actions": [keyboard] }));
    }

    /// Errors and refusals that the browser has noted.
    pub fn complaints(&self) -> Vec<Value> {
        self.ask("se/log", &json!({ "type": "browser" })).as_array().cloned().unwrap_or_default()
    }

    /// How many sheets of paper the page takes.
    pub fn sheets(&self) -> usize {
        let size = json!({ "width": 21.0, "height": 29.7 });
        let pdf = base64(self.ask("print", &json!({ "page": size })).as_str().unwrap());
        let text = String::from_utf8_lossy(&pdf);
        text.match_indices("/Type /Page").filter(|(at, found)| !text[at + found.len()..].starts_with('s')).count()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It is the driver that ends the browser.
        let _ = self.call("DELETE", &format!("/session/{}", self.session), &json!({}));
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
