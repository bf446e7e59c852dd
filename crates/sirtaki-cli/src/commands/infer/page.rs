//! The result as a page: planes of input and output side by side, tiles and halos, and where the time of workers went.

use anyhow::Result;
use sirtaki_infer::{Content, source::Source, work::WorkerReport};
use sirtaki_launch::words::{percent, seconds_in_words};
use sirtaki_volume::format::Choices;

use super::{
    map,
    show::{self, Finished},
    slice::Slice,
};
use crate::{
    commands::report::{
        document::{Document, Key, Table, TableRow},
        figures::{Figure, Section},
        page,
        words::escape,
    },
    plot::{BarRow, Bars, Scale},
};

/// How to read it, below the page.
const READING: [&str; 3] = [
    "A tile writes its core and reads the halo around it. Recomputation is what the network computes for halos, in parts of what \
     is written.",
    "Workers read the next tile and write the last one while they compute, so that the three times overlap.",
    "Planes go through the middle of the volume; black and white are the first and the last hundredth of the values.",
];

/// The whole page.
pub(super) fn write(result: &Finished<'_>) -> Result<String> {
    let (job, plan) = (result.job, result.job.plan()?);
    let sections = [
        Section { title: "Input and output".into(), figures: planes(result)? },
        Section { title: "Workers".into(), figures: workers(result).into_iter().chain([tiles(result)?]).collect() },
    ];
    let sections: Vec<Section> = sections.into_iter().filter(|section| !section.figures.is_empty()).collect();
    let keys = show::planned(job, &plan)?.into_iter().chain(result.rows(&plan));
    let document = Document {
        title: format!("{} by {}", name(&job.settings.output), name(&job.settings.model)),
        sentence: format!(
            "{} voxels in {}, {} tiles of {}.",
            job.spec.input,
            seconds_in_words(result.seconds),
            job.order(&plan)?.len(),
            job.spec.core
        ),
        census: format!("From {} to {}.", job.settings.input.display(), job.settings.output.display()),
        keys: keys.map(|(name, value, detail)| Key { name, value, detail }).collect(),
        notes: job.reach.notes.clone(),
        tables: vec![table(result)],
        links: Vec::new(),
    };
    Ok(page::assemble(&document, "", &sections, &READING, page::Appearance::Inside))
}

fn name(path: &std::path::Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Planes through the middle, of the input and of the output in turns.
fn planes(result: &Finished<'_>) -> Result<Vec<Figure>> {
    let (job, settings) = (result.job, &result.job.settings);
    let told =
        Choices { shape: Some(job.layout.shape.sizes().to_vec()), dtype: Some(job.layout.dtype), ..Choices::default() };
    let input = Source::open(&settings.input, &settings.choices)?;
    let output = Source::open(&settings.output, &told)?;
    let across: &[usize] = if job.spec.input.axes() > 2 { &[0, 1] } else { &[0] };
    let mut figures = Vec::new();
    for axis in across {
        let pair = [("Input", &input, job.channels[0]), ("Output", &output, 0)];
        for (what, source, channel) in pair {
            let title = match job.spec.input.axes() {
                2 => what.to_owned(),
                _ => format!("{what}, across axis {}", escape(&source.space_name(*axis))),
            };
            let slice = Slice::read(source, channel, *axis, 0.5)?;
            let objects = what == "Output" && settings.content == Content::Labels;
            let svg = if objects { slice.of_objects() } else { slice }.svg(&title);
            figures.push(Figure::new(title, format!("Channel {channel}."), svg));
        }
    }
    Ok(figures)
}

/// Where the time of each worker went.
fn workers(result: &Finished<'_>) -> Vec<Figure> {
    let rows = result.told.iter().map(|worker| BarRow {
        name: worker.name.clone(),
        bars: vec![vec![(0, worker.computing)], vec![(1, worker.reading), (2, worker.writing)]],
        note: format!("{} tiles", worker.tiles),
        key: None,
    });
    let bars = Bars {
        title: "Seconds of each worker".to_owned(),
        x: ("seconds", Scale::Plain),
        parts: ["computing", "reading", "writing"].map(Into::into).to_vec(),
        rows: rows.collect(),
        show: seconds_in_words,
    };
    match result.told.is_empty() {
        true => Vec::new(),
        false => {
            vec![Figure::new("Time of the workers", "Reading and writing happen beside computing.", bars.draw())]
        }
    }
}

/// Who computed which tile.
fn tiles(result: &Finished<'_>) -> Result<Figure> {
    let (job, plan) = (result.job, result.job.plan()?);
    let axis = Source::open(&job.settings.input, &job.settings.choices)?.space_name(0);
    let cells = map::picture(job, &plan, &result.tiles, &axis);
    let note = "Layers of tiles; those that a mask leaves out are empty.";
    Ok(Figure::new(cells.title.clone(), note, cells.draw()))
}

fn table(result: &Finished<'_>) -> Table {
    let share = |worker: &WorkerReport, part: f64| percent(part / worker.seconds.max(1e-9), 1);
    let row = |worker: &WorkerReport| TableRow {
        cells: vec![
            worker.name.clone(),
            worker.tiles.to_string(),
            seconds_in_words(worker.seconds),
            share(worker, worker.computing),
            share(worker, worker.reading),
            share(worker, worker.writing),
            format!("{} MB", worker.memory / 1_000_000),
        ],
        marked: false,
    };
    Table {
        title: "Workers".to_owned(),
        note: "Those that ended well; others gave their tiles back.".to_owned(),
        head: vec!["worker", "#tiles", "#time", "#computing", "#reading", "#writing", "#memory"],
        more: Vec::new(),
        rows: result.told.iter().map(row).collect(),
    }
}
