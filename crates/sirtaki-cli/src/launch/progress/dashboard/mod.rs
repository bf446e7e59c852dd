//! A page that shows the job while it runs, on this machine only.
//!
//! A page of a job draws itself from data; that of a study comes drawn, again and again. Three fixed files and one that changes do not need a full web server; this small one exposes nothing by mistake. It
//! listens on loopback only and answers only requests that have the token in the address: not those of other users of
//! the machine, and not those of other sites' pages in a browser (`http`). It ends with the launcher.

mod http;
mod server;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Result;
use sirtaki_comm::secure::fresh_id;

use self::server::Served;
pub use self::server::Shown;
use crate::printer::Advice;

/// How long a page that asked a moment ago is given to fetch the final state.
const FAREWELL: Duration = Duration::from_secs(3);

/// A page that is being served.
#[derive(Debug)]
pub struct Dashboard {
    address: SocketAddr,
    served: Arc<Served>,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Dashboard {
    /// Serves on this port of the loopback address, or on a free one.
    pub fn start(port: Option<u16>, shown: Shown) -> Result<Self> {
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
        let listener = TcpListener::bind(wanted).map_err(|error| {
            let hint = "choose another port, or let one be found with --dashboard alone";
            Advice::new(format!("cannot serve the dashboard on {wanted}: {error}"), hint)
        })?;
        let address = listener.local_addr()?;
        let token: String = fresh_id()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let served = Arc::new(Served::new(token, shown));
        let closing = Arc::new(AtomicBool::new(false));
        let (answers, closes) = (served.clone(), closing.clone());
        let serve = move || server::serve(&listener, &answers, &closes);
        let thread = thread::Builder::new().name("dashboard".into()).spawn(serve)?;
        Ok(Self { address, served, closing, thread: Some(thread) })
    }

    /// Its address for a browser; anyone who knows it may look.
    pub fn url(&self) -> String {
        format!("http://{}/{}/", self.address, self.served.token())
    }

    /// What is served from now on: the job as JSON, or a whole page.
    pub fn show(&self, data: String) {
        self.served.show(data);
    }

    /// Ends it, after a page that is being looked at has fetched what was shown last.
    pub fn finish(self) {
        self.served.await_last_look(FAREWELL);
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        // The server waits for a connection; this wakes it.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
