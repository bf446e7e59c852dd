//! What can be typed after `sirtaki infer`.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;
use sirtaki_infer::{Content, Normalise};
use sirtaki_launch::Via;
use sirtaki_volume::{Extent, format::Dtype};

use super::{
    at_least_one, number,
    run::{HostList, Run, host_list, ssh_option, via},
};
use crate::env;

const EXAMPLES: &str = "\
Examples:
  One worker per core; chunks, compression and voxel size are kept:
    sirtaki infer unet.onnx scan.zarr result.zarr

  Classes instead of values, with 4 workers, after a look at the plan:
    sirtaki infer unet.onnx scan.tif classes.tif --output argmax --dry-run
    sirtaki infer unet.onnx scan.tif classes.tif --output argmax -n 4

  A dataset of an HDF5 file:
    sirtaki infer unet.onnx scan.h5:/entry/data out.zarr

  Only a region, only where a mask is not zero:
    sirtaki infer unet.onnx in.zarr out.zarr --roi 0:512,:,100:900
    sirtaki infer unet.onnx in.zarr out.zarr --mask tissue.zarr

  Objects instead of classes, numbered over the whole volume; the input is
  scaled to mean 0 and standard deviation 1:
    sirtaki infer unet.onnx in.zarr out.zarr --labels --normalise mean

  A network that looks very far, with halos as small as an error of a
  thousandth of the output's standard deviation allows:
    sirtaki infer msd.onnx in.zarr out.zarr --tolerance 1e-3

  On two hosts over ssh, and by an array of independent Slurm jobs:
    sirtaki infer unet.onnx in.zarr out.zarr -H a:4,b:4
    sbatch --array=1-9 --wrap 'sirtaki infer net.onnx in.zarr out.zarr --join'

The result is that of the whole volume, bit by bit, whatever the tiles and
workers. After an interruption or a crash, the same command continues.
ONNX Runtime is needed: pip install onnxruntime. See docs/volumes.md.";

/// `sirtaki infer`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Infer {
    /// Network, in an ONNX file
    pub model: PathBuf,

    /// Volume to read: zarr, HDF5, npy, TIFF, NIfTI, MRC or raw
    pub input: PathBuf,

    /// Volume to write, in the format of its name
    pub output: PathBuf,

    /// What to write: values, argmax (classes), or probabilities (softmax over the channels)
    #[arg(long = "output", value_name = "WHAT", default_value = "values", value_parser = content)]
    pub content: Content,

    /// Number the objects of the whole volume, connected voxels of one class, and write these numbers
    #[arg(long, conflicts_with = "content")]
    pub labels: bool,

    /// Scale the input by statistics of the whole volume: mean, percentiles (1 and 99), or percentiles:LOW,HIGH
    #[arg(long, value_name = "HOW", value_parser = normalise)]
    pub normalise: Option<Normalise>,

    /// Channels of the input to give to the network, such as `0,2` [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub channels: Vec<u64>,

    /// Region of the output to compute, such as `0:512,:,100:900`; the rest is zero
    #[arg(long, value_name = "REGION", value_parser = region)]
    pub roi: Option<RegionSpans>,

    /// Volume that is zero where nothing is wanted; tiles without anything else are not computed
    #[arg(long, value_name = "VOLUME")]
    pub mask: Option<PathBuf>,

    /// Level of an image that has several, from the finest one, 0
    #[arg(long, value_name = "N", default_value = "0")]
    pub level: usize,

    /// Shape of a raw file, such as `512,1024,1024`, slowest axis first
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    pub shape: Option<Extent>,

    /// Type of a raw file, such as uint16 or float32
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    pub dtype: Option<Dtype>,

    /// Let the network see voxels that are not numbers, instead of refusing them
    #[arg(long)]
    pub allow_nan: bool,

    /// Replace an output that exists, once the new one is complete
    #[arg(long)]
    pub replace: bool,

    /// Use the smallest halos whose measured error is at most this many standard deviations of the output
    #[arg(long, value_name = "ERROR", value_parser = tolerance, help_heading = "Exactness")]
    pub tolerance: Option<f64>,

    /// Accept that instance and group norm use the statistics of a tile instead of those of the volume
    #[arg(long, help_heading = "Exactness")]
    pub inexact: bool,

    /// Gather what instance and group norm need over the whole volume first, in a pass for each of them
    #[arg(long, conflicts_with_all = ["inexact", "blend", "tolerance"], help_heading = "Exactness")]
    pub global_statistics: bool,

    /// Blend windows that overlap by this part, for networks that cannot be exact [default with --blend alone: 0.5]
    #[arg(long, value_name = "OVERLAP", num_args = 0..=1, require_equals = true, default_missing_value = "0.5",
          value_parser = overlap, conflicts_with_all = ["tolerance", "inexact"], help_heading = "Exactness")]
    pub blend: Option<f64>,

    /// Window that the network is given at a time with --blend [default: 96 voxels along each axis]
    #[arg(long, value_name = "SIZES", value_parser = sizes, requires = "blend", help_heading = "Exactness")]
    pub window: Option<Extent>,

    /// Compute this many random places again, with more around them, and compare all bits
    #[arg(long, value_name = "N", help_heading = "Exactness")]
    pub verify: Option<usize>,

    /// Number of workers [default: all slots of the hosts or of the allocation; on this machine, one per core]
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one, help_heading = "Workers")]
    pub ranks: Option<NonZeroUsize>,

    /// Hosts with their workers, such as `a:4,user@b:4`; all must see the same files
    #[arg(short = 'H', long, value_name = "LIST", value_parser = host_list, conflicts_with = "hostfile", help_heading = "Workers")]
    pub hosts: Option<HostList>,

    /// The same from a file with one host per line
    #[arg(long, value_name = "FILE", help_heading = "Workers")]
    pub hostfile: Option<PathBuf>,

    /// How to start workers: auto, local, ssh, slurm, pbs or lsf [default: auto]
    #[arg(long, value_name = "WAY", value_parser = via(), hide_possible_values = true, help_heading = "Workers")]
    pub via: Option<Via>,

    /// Allow more workers than slots
    #[arg(long, help_heading = "Workers")]
    pub oversubscribe: bool,

    /// Work on an output together with other processes that were given the same command
    #[arg(long, help_heading = "Workers")]
    pub join: bool,

    /// Threads of each worker; results are the same in every bit with one
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_least_one, help_heading = "Workers")]
    pub threads: NonZeroUsize,

    /// Compute on this many GPUs of each host, workers in turns, with onnxruntime-gpu
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Workers")]
    pub gpus: Option<NonZeroUsize>,

    /// Memory of each worker, such as 2G [default: 512M, or less if there is not enough]
    #[arg(long, value_name = "BYTES", value_parser = env::bytes, help_heading = "Workers")]
    pub memory: Option<usize>,

    /// What one tile writes, such as `128,128,128` [default: as much as fits the memory]
    #[arg(long, value_name = "SIZES", value_parser = sizes, help_heading = "Workers")]
    pub tile: Option<Extent>,

    /// Chunks of the output, such as `64,64,64` [default: those of the input]
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    pub chunk: Option<Extent>,

    /// Option for ssh, as in its configuration file; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = ssh_option, help_heading = "Workers")]
    pub ssh_option: Vec<String>,

    /// Configuration file for ssh, as with `ssh -F`
    #[arg(long, value_name = "FILE", help_heading = "Workers")]
    pub ssh_config: Option<PathBuf>,

    /// Path of `sirtaki` on the other hosts [default: the same as here]
    #[arg(long, value_name = "PATH", help_heading = "Workers")]
    pub remote_sirtaki: Option<String>,

    /// Show tiles, halos, memory and time, and compute nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Show neither progress nor result
    #[arg(short, long)]
    pub quiet: bool,

    /// Write a page with slices of input and output, tiles and times of workers
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Print the result, or the plan of --dry-run, as a JSON object
    #[arg(long)]
    pub json: bool,
}

impl Infer {
    /// What `sirtaki run` would be told to start these workers.
    pub fn job(&self, program: Vec<String>) -> Run {
        Run {
            ranks: self.ranks,
            hosts: self.hosts.clone(),
            hostfile: self.hostfile.clone(),
            via: self.via,
            oversubscribe: self.oversubscribe.then_some(true),
            ssh_option: self.ssh_option.clone(),
            ssh_config: self.ssh_config.clone(),
            remote_sirtaki: self.remote_sirtaki.clone(),
            program,
            ..Run::default()
        }
    }
}

/// What a worker of `sirtaki infer` is told; the rest is in the job's folder.
#[derive(Debug, Args)]
pub struct InferWorker {
    /// The volume to write
    #[arg(long)]
    pub output: PathBuf,
    /// Threads of this worker
    #[arg(long)]
    pub threads: NonZeroUsize,
    /// GPUs of its host that workers use in turns
    #[arg(long)]
    pub gpus: Option<NonZeroUsize>,
    /// Where ONNX Runtime was on the first host
    #[arg(long)]
    pub library: PathBuf,
    /// Where HDF5's library was there, if a volume needs it
    #[arg(long)]
    pub hdf5: Option<PathBuf>,
}

/// The first voxel and the one behind the last, along each axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSpans(pub Vec<(u64, Option<u64>)>);

fn region(text: &str) -> Result<RegionSpans, String> {
    let bad = || format!("`{text}` is no region; write from:to for each axis of space, as in 0:512,:,100:900");
    let one = |part: &str| {
        let (from, to) = part.split_once(':').ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
        let from = if from.trim().is_empty() { 0 } else { number(from)? };
        Ok((from, if to.trim().is_empty() { None } else { Some(number(to)?) }))
    };
    text.split(',').map(one).collect::<Result<_, String>>().map(RegionSpans)
}

fn sizes(text: &str) -> Result<Extent, String> {
    let bad = |_| format!("`{text}` is no list of sizes; write one per axis, as in 64,64,64");
    let sizes = text.split(',').map(|size| size.trim().parse().map_err(bad)).collect::<Result<Vec<u64>, String>>()?;
    Extent::new(sizes).map_err(|error| error.to_string())
}

fn dtype(text: &str) -> Result<Dtype, String> {
    let known = || Dtype::ALL.map(Dtype::name).join(", ");
    Dtype::from_name(text).ok_or_else(|| format!("there is no type `{text}`; choose one of {}", known()))
}

fn content(text: &str) -> Result<Content, String> {
    // Numbering objects is more than another form of the values, and has an option of its own.
    let known = || Content::ALL.into_iter().filter(|(_, content)| *content != Content::Labels);
    let names = || known().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    let found = known().find(|(name, _)| *name == text).map(|(_, content)| content);
    found.ok_or_else(|| format!("there is no `{text}`; choose one of {}", names()))
}

fn normalise(text: &str) -> Result<Normalise, String> {
    let bad = || format!("`{text}` is none of mean, percentiles and percentiles:LOW,HIGH, as in percentiles:0.5,99.5");
    match text {
        "mean" => Ok(Normalise::Mean),
        "percentiles" => Ok(Normalise::Percentiles(1.0, 99.0)),
        _ => {
            let (low, high) =
                text.strip_prefix("percentiles:").and_then(|pair| pair.split_once(',')).ok_or_else(bad)?;
            let percent = |text: &str| text.trim().parse::<f64>().map_err(|_| bad());
            let (low, high) = (percent(low)?, percent(high)?);
            let sensible = (0.0..=100.0).contains(&low) && (0.0..=100.0).contains(&high) && low < high;
            sensible.then_some(Normalise::Percentiles(low, high)).ok_or_else(bad)
        }
    }
}

fn overlap(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..1.0).contains(&number), "at least 0 and less than 1, such as 0.5")
}

fn tolerance(text: &str) -> Result<f64, String> {
    number(text, |number| number >= 0.0, "zero or greater, such as 1e-3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_open_where_nothing_is_said() {
        assert_eq!(region("0:512, : ,100:").unwrap().0, [(0, Some(512)), (0, None), (100, None)]);
        for wrong in ["", "3", "a:b", "1:2:3", "-1:4"] {
            assert!(region(wrong).is_err(), "{wrong}");
        }
        assert_eq!(sizes("64,32").unwrap().sizes(), [64, 32]);
        assert!(sizes("64,0").is_err() && sizes("x").is_err());
    }

    #[test]
    fn percentiles_are_a_pair_in_order() {
        assert_eq!(normalise("mean"), Ok(Normalise::Mean));
        assert_eq!(normalise("percentiles"), Ok(Normalise::Percentiles(1.0, 99.0)));
        assert_eq!(normalise("percentiles:0.5, 99.5"), Ok(Normalise::Percentiles(0.5, 99.5)));
        for wrong in ["median", "percentiles:", "percentiles:3", "percentiles:5,3", "percentiles:-1,3"] {
            assert!(normalise(wrong).unwrap_err().contains("percentiles:0.5,99.5"), "{wrong}");
        }
        assert!(content("labels").is_err() && overlap("1").is_err());
    }
}
