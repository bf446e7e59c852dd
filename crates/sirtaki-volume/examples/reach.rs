//! Prints how far the network of an ONNX file looks: `reach FILE CHANNELS SIZE...`, a line of JSON.
#![allow(clippy::print_stdout)]

use std::{env, error::Error, path::Path};

use sirtaki_volume::{
    Extent, VolumeError,
    reach::{Layout, of_onnx, open},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [file, channels, sizes @ ..] = arguments.as_slice() else {
        return Err("usage: reach FILE CHANNELS SIZE...".into());
    };
    let sizes: Result<Vec<u64>, _> = sizes.iter().map(|size| size.parse()).collect();
    let layout = Layout::channels_first(channels.parse()?, &Extent::new(sizes?)?);
    let found = open(Path::new(file)).and_then(|model| of_onnx(&model, &layout));
    match found {
        Ok(reach) => println!("{}", serde_json::to_string(&reach)?),
        Err(problem) => println!("{}", serde_json::to_string(&said(&problem))?),
    }
    Ok(())
}

fn said(problem: &VolumeError) -> [(&'static str, String); 2] {
    [("error", problem.to_string()), ("hint", problem.hint().unwrap_or_default().to_owned())]
}
