//! Processes that a launcher started to serve the ranks of a job.

use std::sync::atomic::AtomicBool;

use sirtaki_engine::job::{JobServers, is_server};
use sirtaki_server::ServicePlace;

use crate::Result;

/// In a process that `sirtaki run --servers` started as a server: serves the job's
/// [`ServerOptimizer`](crate::ServerOptimizer) until the last rank has left, and returns `true`. In a rank it returns
/// `false` at once. Programs call it before [`init`](crate::init):
///
/// ```no_run
/// # fn main() -> sirtaki::Result<()> {
/// if sirtaki::serve()? {
///     return Ok(());
/// }
/// let world = sirtaki::init()?;
/// # let _ = world;
/// # Ok(())
/// # }
/// ```
pub fn serve() -> Result<bool> {
    serve_unless(&AtomicBool::new(false))
}

/// The same in a program that handles signals itself. Ranks that are asked to end may need their servers once more, so a
/// server ends with them; `stopped` ends only the wait for ranks that have not made an optimizer yet.
pub fn serve_unless(stopped: &AtomicBool) -> Result<bool> {
    let get = |name: &str| std::env::var(name).ok();
    if !is_server(&get)? {
        return Ok(false);
    }
    let Some(servers) = JobServers::discover(&get)? else { return Ok(false) };
    let Some((head, hosts)) = servers.head(stopped)? else { return Ok(true) };
    ServicePlace::new(&servers.communication, hosts)?.serve(head)?;
    Ok(true)
}
