//! The lines of JSON between the measuring side and a peer's processes.
//!
//! A process says [`Hello`], then answers every [`Order`] with [`Times`], and ends on `{"end":true}` or when the socket
//! is closed.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sirtaki_comm::CommError;

/// The environment variable that names the socket.
pub const SOCKET: &str = "SIRTAKI_BENCH_SOCKET";

/// The first line of every process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The library's name.
    pub peer: String,
    /// Which process this is.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Order {
    /// What to do, for peers that can do several things.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    /// Bytes to reduce in place, as `f32`.
    pub bytes: usize,
    /// How many timed calls, back to back.
    pub iterations: usize,
    /// Nothing more to do: end.
    pub end: bool,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Microseconds of every call.
    pub micros: Vec<f64>,
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The system, a socket or a child process.
    #[error("{action}: {source}")]
    Io {
        /// What was being done.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The other side did not keep to the protocol.
    #[error("{0}")]
    Protocol(String),
    /// The communicator failed.
    #[error(transparent)]
    Comm(#[from] CommError),
}

impl BenchError {
    /// The error of the system while doing `action`.
    pub fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| BenchError::Io { action, source }
    }
}

/// One connection, line by line.
#[derive(Debug)]
pub struct Lines {
    reader: BufReader<UnixStream>,
}

impl Lines {
    /// Connects to the measuring side.
    pub fn connect(socket: &Path) -> Result<Self, BenchError> {
        let stream = UnixStream::connect(socket)
            .map_err(BenchError::io(format!("cannot connect to the benchmark at {}", socket.display())))?;
        Ok(Self::new(stream))
    }

    /// Lines over this stream.
    pub fn new(stream: UnixStream) -> Self {
        Self { reader: BufReader::new(stream) }
    }

    /// The stream, to set its time limits.
    pub fn stream(&self) -> &UnixStream {
        self.reader.get_ref()
    }

    /// Writes one line.
    pub fn write(&mut self, line: &impl Serialize) -> Result<(), BenchError> {
        let mut text = serde_json::to_vec(line).map_err(|error| BenchError::Protocol(error.to_string()))?;
        text.push(b'\n');
        self.reader.get_mut().write_all(&text).map_err(BenchError::io("cannot write to the benchmark's socket"))
    }

    /// Reads one line; `None` when the other side has closed.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<Option<T>, BenchError> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).map_err(BenchError::io("no line from the benchmark's socket"))?;
        if read == 0 {
            return Ok(None);
        }
        serde_json::from_str(&line)
            .map(Some)
            .map_err(|error| BenchError::Protocol(format!("a line is not what it should be ({error}): {line}")))
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, Order, Times};
    use std::os::unix::net::UnixStream;

    #[test]
    fn lines_travel_and_the_end_is_seen() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Lines::new(one), Lines::new(other));
        let order = Order { bytes: 4, iterations: 2, ..Order::default() };
        one.write(&order).unwrap();
        assert_eq!(other.read::<Order>().unwrap(), Some(order));
        other.write(&serde_json::json!({"end": true})).unwrap();
        assert!(one.read::<Order>().unwrap().unwrap().end);
        other.write(&serde_json::json!({"nothing": []})).unwrap();
        assert!(one.read::<Times>().is_err());
        drop(other);
        assert_eq!(one.read::<Order>().unwrap(), None);
    }
}
