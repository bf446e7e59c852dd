//! Whether device memory works on this machine's GPU: streams, memory and kernels against the host's results, collectives of
//! several ranks that share the GPU, and how fast all of it is.
//!
//! `device_check` does everything, `device_check kernels` and `device_check arena [RANKS …]` a part of it. It needs a GPU and
//! its driver; `SIRTAKI_CUDA` names another one's file.

#![allow(clippy::print_stdout)]

mod arena;
mod basics;
mod kernels;
mod values;

use std::{env, error::Error, path::PathBuf, sync::Arc, time::Duration};

use sirtaki_comm::device::{Driver, Gpu, Stream};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["rank", rank, size, folder] => arena::rank(rank.parse()?, size.parse()?, folder),
        ["kernels"] => single(),
        ["arena"] => arena::start(&[2, 4]),
        ["arena", sizes @ ..] => arena::start(&sizes.iter().map(|size| size.parse()).collect::<Result<Vec<_>, _>>()?),
        [] => {
            single()?;
            arena::start(&[2, 4])
        }
        _ => Err("usage: device_check [kernels | arena RANKS …]".into()),
    }
}

fn single() -> Outcome {
    let gpu = gpu()?;
    println!("{gpu:?}, driver for CUDA {}", driver()?.version());
    basics::check(&gpu)?;
    kernels::check(&gpu)
}

fn driver() -> Outcome<Arc<Driver>> {
    Ok(Driver::load(env::var_os("SIRTAKI_CUDA").map(PathBuf::from).as_deref())?)
}

fn gpu() -> Outcome<Arc<Gpu>> {
    Ok(Gpu::open(driver()?, 0)?)
}

/// Waits until a stream has done everything.
fn finish(stream: &Stream) -> Outcome {
    while !stream.is_done()? {
        std::thread::sleep(Duration::from_micros(20));
    }
    Ok(())
}
