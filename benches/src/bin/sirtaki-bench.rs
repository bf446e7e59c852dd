//! `cargo xtask bench comm`, `engine`, `telemetry`, `launch`, `train`, `torch`, `jax` and `predict`: sirtaki beside other
//! libraries, and its predictions beside what happens, on this machine.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to the person who started it")]

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use sirtaki_bench::{
    BenchError,
    comm::{self, Plan, Row, Table},
    contest, efficiency, engine,
    goals::Setting,
    jax, launch,
    pipelines::PIPELINES,
    plot, predict,
    python::{self, Horovod},
    report::{self, Verdict},
    start::Starter,
    torch, train,
    wheel::{Environment, Package},
};
use sirtaki_launch::tree;

/// Compares sirtaki with other libraries, interleaved, on this machine.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// All-reduce beside Open MPI, PyTorch's Gloo and the machine's own limit
    ///
    /// Every library takes its turn in every round. Times are medians of the slowest rank; a ratio is the median over
    /// rounds of the other's time over ours, so above 1 sirtaki is faster. ✓ and ✗ say whether our goal is reached.
    Comm {
        /// Numbers of ranks on this host
        #[arg(long, value_delimiter = ',', default_value = "2,4")]
        ranks: Vec<usize>,
        /// Bytes to reduce
        #[arg(
            long,
            value_delimiter = ',',
            default_value = "4,64,1024,4096,16384,65536,262144,1048576,4194304,\
            16777216,67108864,268435456"
        )]
        sizes: Vec<usize>,
        /// Turns of every library at every size
        #[arg(long, default_value_t = 15)]
        rounds: usize,
        /// Leave out TCP, over loopback and between namespaces (needs root)
        #[arg(long)]
        no_tcp: bool,
        /// Leave out Gloo, which needs PyTorch
        #[arg(long)]
        no_gloo: bool,
        /// Print the tables as Markdown at the end
        #[arg(long)]
        markdown: bool,
        /// Draw the tables into this SVG file
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
    /// The engine with the 161 tensors of ResNet-50, in an order that differs from rank to rank, and with one of 4 B
    ///
    /// Beside one plain all-reduce of the same bytes, PyTorch's Gloo (tensor by tensor and in flat buckets) and Horovod,
    /// where the Python in SIRTAKI_BENCH_PYTHON or SIRTAKI_BENCH_HOROVOD has it. Then what the engine costs by itself:
    /// its records, its idleness, and a step of 1,000 tensors among more and more ranks. Every goal gets a line.
    Engine {
        /// Numbers of ranks on this host
        #[arg(long, value_delimiter = ',', default_value = "2,4")]
        ranks: Vec<usize>,
        /// Turns of every library
        #[arg(long, default_value_t = 15)]
        rounds: usize,
        /// Numbers of ranks, as threads, that agree on 1,000 tensors
        #[arg(long, value_delimiter = ',', default_value = "8,16,32,64")]
        threads: Vec<usize>,
        /// Leave out Gloo, which needs PyTorch
        #[arg(long)]
        no_gloo: bool,
        /// Print the tables as Markdown at the end
        #[arg(long)]
        markdown: bool,
    },
    /// What steps of ResNet-50's tensors, and of a training, cost with everything on that a job shows of itself and without
    Telemetry {
        /// Numbers of ranks on this host
        #[arg(long, value_delimiter = ',', default_value = "2")]
        ranks: Vec<usize>,
        /// Turns of 10 steps with and 10 without
        #[arg(long, default_value_t = 30)]
        rounds: usize,
    },
    /// `sirtaki run` beside Open MPI's `mpirun` and PyTorch's `torchrun`: start, end, and what it uses meanwhile
    ///
    /// Two ranks to their first collective and to their end, then many ranks of `true`; every launcher takes its turn in
    /// every round, and times are medians. Then what launcher and agent use while a job runs. Every goal gets a line.
    Launch {
        /// Turns of every launcher; a third of that where Python and PyTorch have to start
        #[arg(long, default_value_t = 15)]
        rounds: usize,
        /// How many ranks of `true`
        #[arg(long, default_value_t = 64)]
        ranks: usize,
        /// Leave out `torchrun`, which needs PyTorch
        #[arg(long)]
        no_torch: bool,
    },
    /// `sirtaki train` beside PyTorch DDP over Gloo: time to accuracy, throughput, scaling and memory
    ///
    /// The same networks, batches, optimizer, learning rates, images and seeds, one thread per rank; both take turns, run
    /// by run. Time to 98.5 % on MNIST is the mean over seeds without the best and the worst, tests included, start
    /// excluded. Throughput is the median of the rounds. Every goal gets a line.
    Train {
        /// Seeds for the time to the target
        #[arg(long, default_value_t = 5)]
        seeds: usize,
        /// Turns of every system at every throughput
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Three seeds, one round, few steps: to see that it works
        #[arg(long)]
        quick: bool,
        /// Leave out DDP, which needs PyTorch
        #[arg(long)]
        no_torch: bool,
    },
    /// The Python package beside PyTorch DDP over Gloo and Horovod: training steps of two ranks, a small all-reduce, and
    /// PyTorch's own pipelines
    ///
    /// With the Pythons in SIRTAKI_BENCH_PYTHON and SIRTAKI_BENCH_HOROVOD, into copies of which the package is installed.
    /// Everybody takes a turn in every round; figures are medians of rounds, ratios medians of the rounds' ratios.
    /// Strangers are two processes that know nothing of each other. Every goal gets a line.
    ///
    /// Works: `cnn`, `mlp`, `transformer`, `resnet`, `allreduce`, `pipeline.4096`, `pipeline.1048576`.
    Torch(Package),
    /// The Python package beside JAX's own processes over Gloo: all-reduces and training steps of two ranks
    ///
    /// With the Python in SIRTAKI_BENCH_PYTHON, into a copy of which the package is installed. Turns and figures are as
    /// for `torch`.
    ///
    /// Works: `allreduce.4`, `allreduce.1048576`, `allreduce.67108864`, `cnn`, `mlp`.
    Jax(Package),
    /// What `sirtaki predict` says about a recorded job beside what happens over slow links between namespaces
    ///
    /// The job sleeps instead of computing, so that only the network is shared. Needs root; on a busy machine, start it with
    /// `chrt -r 1`, or what is measured is waiting for a processor.
    Predict {
        /// Numbers of hosts, one rank each
        #[arg(long, value_delimiter = ',', default_value = "2,3,4")]
        ranks: Vec<usize>,
        /// Links: megabits per second out of every host, and microseconds between them after a colon
        #[arg(long, value_delimiter = ',', default_value = "200,1000,1000:500")]
        links: Vec<predict::Link>,
        /// Bytes of a fused batch at most
        #[arg(long, value_delimiter = ',', default_value = "16777216,1048576")]
        fusions: Vec<usize>,
        /// Steps of every run
        #[arg(long, default_value_t = 40)]
        steps: usize,
    },
}

fn ranks_of(setting: &Setting) -> usize {
    match setting {
        Setting::Shared(ranks) | Setting::Engine(ranks) => *ranks,
        Setting::Loopback | Setting::Namespaces => 2,
    }
}

fn show(setting: &Setting, row: &Row) {
    println!("{:<36} {}", setting.to_string(), report::line(row, ranks_of(setting)));
    let _ = std::io::stdout().flush();
}

fn say(text: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("… {text}");
    }
}

fn print_markdown(tables: &[Table]) {
    tables.iter().for_each(|table| println!("\n{}", report::markdown(table, ranks_of(&table.setting))));
}

/// Prints the goals, or with `missed` only those that were missed, and their number.
fn print_goals(verdicts: &[Verdict], missed: bool) {
    println!();
    verdicts.iter().filter(|verdict| !missed || !verdict.reached).for_each(|verdict| println!("{verdict}"));
    let count = verdicts.iter().filter(|verdict| !verdict.reached).count();
    println!("{count} of {} goals missed", verdicts.len());
}

fn run_engine(plan: &Plan, threads: &[usize], starter: &mut Starter) -> Result<(Vec<Table>, Vec<Verdict>), BenchError> {
    let tables = engine::steps(plan, starter, &say, &show)?;
    let mut verdicts = report::verdicts(&tables);
    verdicts.extend(engine::small(&tables));
    say("steps with and without records");
    for &ranks in &plan.ranks {
        verdicts.push(engine::records(plan.rounds, ranks, starter)?);
        verdicts.push(engine::telemetry(plan.rounds, ranks, starter)?);
    }
    say("idleness");
    verdicts.push(engine::idle(2, starter)?);
    say("1,000 tensors among many ranks");
    let scales = engine::scales(plan.rounds.min(3), threads, starter)?;
    println!("\n{}", report::scales(&scales));
    verdicts.extend(engine::linear(&scales));
    Ok((tables, verdicts))
}

fn run_launch(rounds: usize, ranks: usize, starter: &Starter) -> Result<Vec<Verdict>, BenchError> {
    tree::adopt_orphans().map_err(BenchError::io("cannot adopt orphans"))?;
    say("programs of 2 ranks");
    let programs = launch::programs(rounds, starter)?;
    say("PyTorch scripts of 2 ranks");
    let scripts = launch::scripts(rounds.div_ceil(3), starter)?;
    say("many ranks");
    let many = launch::many(rounds.div_ceil(3), ranks, starter)?;
    let mut verdicts = vec![launch::soon(&programs[0], &programs[1])];
    verdicts.extend(launch::sooner(&programs[1], &programs[2]));
    verdicts.extend(launch::sooner(&scripts[0], &scripts[1]));
    let last = format!("{ranks} ranks of `true`");
    let tables = [("2 ranks of a program", &programs), ("2 ranks of a PyTorch script", &scripts), (&last, &many)];
    for (title, starts) in tables {
        println!("{}\n", report::starts(title, starts));
        verdicts.extend(launch::clean(title, starts));
    }
    say("what the launcher uses");
    verdicts.extend(launch::running(starter)?);
    Ok(verdicts)
}

fn run_train(plan: &train::TrainPlan, starter: &Starter) -> Result<Vec<Verdict>, BenchError> {
    tree::adopt_orphans().map_err(BenchError::io("cannot adopt orphans"))?;
    let races = train::races(plan, starter, &say)?;
    println!("{}\n", contest::races(&races));
    let speeds = train::speeds(plan, starter, &say)?;
    println!("{}", contest::speeds(&speeds));
    let mut verdicts = contest::fast(&races);
    verdicts.extend(contest::scaling(&speeds));
    Ok(verdicts)
}

fn run_jax(package: &Package) -> Result<Vec<Verdict>, BenchError> {
    say("installing the package");
    let environment = jax::JaxPython::make(&package.wheel, &target().join("python/bench"))?;
    let mut crew = jax::JaxCrew::start(&environment, &say)?;
    let mut verdicts = Vec::new();
    for task in jax::TASKS.iter().filter(|task| package.wants(task.name)) {
        say(task.about);
        let contest = crew.perform(task, package.rounds())?;
        println!("{}\n", contest.table());
        verdicts.extend(contest.verdicts());
    }
    Ok(verdicts)
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")
}

fn run_torch(package: &Package) -> Result<Vec<Verdict>, BenchError> {
    let (rounds, wanted) = (package.rounds(), |name: &str| package.wants(name));
    say("installing the package");
    let mut members = torch::start(&environments(&package.wheel)?, &say)?;
    let mut verdicts = Vec::new();
    for work in torch::WORKS.iter().filter(|work| wanted(work.name)) {
        say(work.about);
        let courses = torch::train(work, rounds, &mut members)?;
        println!("{}\n", efficiency::table(work, &courses));
        verdicts.extend(efficiency::goals(work, &courses));
    }
    if wanted("allreduce") {
        say("all-reduce of 4 B");
        let courses = torch::small(rounds, &mut members)?;
        println!("{}\n", efficiency::small_table(&courses));
        verdicts.extend(efficiency::small_goals(&courses));
    }
    for pipeline in PIPELINES.iter().filter(|pipeline| wanted(pipeline.name)) {
        say(pipeline.about);
        let courses = pipeline.run(rounds, &mut members)?;
        println!("{}\n", pipeline.table(&courses));
        verdicts.extend(pipeline.goals(&courses));
    }
    Ok(verdicts)
}

/// One for the Python that has PyTorch, and one for the Python that has Horovod, if that is another one.
fn environments(wheel: &Path) -> Result<Vec<Environment>, BenchError> {
    let target = target();
    let python = python::with_torch(&target, &say);
    let horovod =
        Horovod::find(python.as_deref()).map(|horovod| horovod.python).filter(|it| Some(it) != python.as_ref());
    let folder = target.join("python/bench");
    let made = python.iter().chain(&horovod).map(|python| Environment::make(python, wheel, &folder));
    let made = made.collect::<Result<Vec<_>, _>>()?;
    if made.is_empty() {
        return Err(BenchError::Protocol("there is no Python with PyTorch; name one in SIRTAKI_BENCH_PYTHON".into()));
    }
    Ok(made)
}

fn run_predict(plan: &predict::PredictPlan) -> Result<(), BenchError> {
    println!("{}", predict::head());
    let rows = predict::run(plan, &mut starter(true)?, &say, &|row| println!("{}", predict::line(row)))?;
    println!("{}", predict::summary(&rows));
    Ok(())
}

fn starter(no_gloo: bool) -> Result<Starter, BenchError> {
    let mut programs = std::env::current_exe().map_err(BenchError::io("cannot find this program"))?;
    programs.pop();
    let target = target();
    let python = if no_gloo { None } else { python::with_torch(&target, &say) };
    let horovod = Horovod::find(python.as_deref());
    Ok(Starter::new(programs, python, horovod))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    match arguments.command {
        Command::Comm { ranks, sizes, rounds, no_tcp, no_gloo, markdown, plot } => {
            let plan = Plan { ranks, sizes, rounds: rounds.max(1), tcp: !no_tcp };
            let tables = comm::run(&plan, &mut starter(no_gloo)?, &say, &show)?;
            if markdown {
                print_markdown(&tables);
            }
            print_goals(&report::verdicts(&tables), true);
            let Some(file) = plot else { return Ok(()) };
            let action = format!("cannot write {}", file.display());
            std::fs::write(&file, plot::svg(&tables)).map_err(BenchError::io(action))
        }
        Command::Engine { ranks, rounds, threads, no_gloo, markdown } => {
            let sizes = vec![4, engine::step_bytes()];
            let plan = Plan { ranks, sizes, rounds: rounds.max(1), tcp: false };
            let (tables, verdicts) = run_engine(&plan, &threads, &mut starter(no_gloo)?)?;
            if markdown {
                print_markdown(&tables);
            }
            print_goals(&verdicts, false);
            Ok(())
        }
        Command::Telemetry { ranks, rounds } => {
            let mut starter = starter(true)?;
            let mut verdicts = Vec::new();
            for ranks in ranks {
                verdicts.push(engine::records(rounds.max(1), ranks, &mut starter)?);
                verdicts.push(engine::telemetry(rounds.max(1), ranks, &mut starter)?);
            }
            verdicts.push(train::seen(rounds.div_ceil(3), &starter, &say)?);
            print_goals(&verdicts, false);
            Ok(())
        }
        Command::Launch { rounds, ranks, no_torch } => {
            print_goals(&run_launch(rounds.max(1), ranks.max(1), &starter(no_torch)?)?, false);
            Ok(())
        }
        Command::Train { seeds, rounds, quick, no_torch } => {
            let plan = match quick {
                true => train::TrainPlan { seeds: 3, rounds: 1, steps: [100, 20] },
                false => train::TrainPlan { seeds: seeds.max(1), rounds: rounds.max(1), steps: [400, 60] },
            };
            print_goals(&run_train(&plan, &starter(no_torch)?)?, false);
            Ok(())
        }
        Command::Torch(package) => {
            print_goals(&run_torch(&package)?, false);
            Ok(())
        }
        Command::Jax(package) => {
            print_goals(&run_jax(&package)?, false);
            Ok(())
        }
        Command::Predict { ranks, links, fusions, steps } => {
            run_predict(&predict::PredictPlan { ranks, links, fusions, steps: steps.max(10) })
        }
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
