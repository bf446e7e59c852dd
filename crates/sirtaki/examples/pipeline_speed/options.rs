//! What can be typed after the program's name.

use std::path::PathBuf;

use crate::work::Size;

pub(crate) const HELP: &str = "\
How long the workers of a pipeline wait for each other, and how much faster they are than one process

Options:
  --workers LIST       Workers of a pipeline [default: 1,2,4]
  --micro-batches N    Micro-batches of a step [default: 16]
  --layers N           Layers, to be shared equally, in halves too [default: 8]
  --width N            Inputs and outputs of a layer [default: 1024]
  --samples N          Samples of a micro-batch [default: 64]
  --steps N            Steps of a turn [default: 10]
  --rounds N           Turns [default: 5]
  --check              Measure nothing: compare with the bits of one process, on --workers, which divide 16
  --python PATH        A Python with PyTorch, for its own pipeline [default: SIRTAKI_BENCH_PYTHON]";

/// What is wanted.
pub(crate) struct Options {
    pub(crate) workers: Vec<usize>,
    pub(crate) size: Size,
    pub(crate) rounds: usize,
    pub(crate) check: bool,
    pub(crate) python: Option<PathBuf>,
}

impl Options {
    /// The options that these words mean; none if help is asked for.
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let python = std::env::var_os("SIRTAKI_BENCH_PYTHON").map(PathBuf::from);
        let size = Size { micros: 16, layers: 8, width: 1024, samples: 64, steps: 10 };
        let mut options = Self { workers: vec![1, 2, 4], size, rounds: 5, check: false, python };
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                return Ok(None);
            }
            if word == "--check" {
                options.check = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            let number = || match value.parse() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(format!("{word}: `{value}` is not a number from 1 on")),
            };
            match word.as_str() {
                "--workers" => {
                    let wrong = |_| format!("--workers: `{value}` is not a list of numbers");
                    options.workers = value.split(',').map(str::parse).collect::<Result<_, _>>().map_err(wrong)?;
                }
                "--micro-batches" => options.size.micros = number()?,
                "--layers" => options.size.layers = number()?,
                "--width" => options.size.width = number()?,
                "--samples" => options.size.samples = number()?,
                "--steps" => options.size.steps = number()?,
                "--rounds" => options.rounds = number()?,
                "--python" => options.python = Some(value.into()),
                _ => return Err(format!("there is no option `{word}`")),
            }
        }
        if options.check {
            let odd = options.workers.iter().find(|&&workers| workers == 0 || !16_usize.is_multiple_of(workers));
            return match odd {
                None => Ok(Some(options)),
                Some(workers) => Err(format!("--check: 16 shards cannot be shared equally by {workers} workers")),
            };
        }
        // What others are compared with.
        if !options.workers.contains(&1) {
            options.workers.insert(0, 1);
        }
        let is_unequal = |&&workers: &&usize| workers == 0 || !options.size.layers.is_multiple_of(2 * workers);
        match options.workers.iter().find(is_unequal) {
            None => Ok(Some(options)),
            Some(workers) => {
                let layers = options.size.layers;
                Err(format!("{layers} layers cannot be shared equally by {workers} workers with two stages each"))
            }
        }
    }
}
