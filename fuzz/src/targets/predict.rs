//! Whatever a timeline or the description of a network says, `sirtaki predict` predicts numbers from it or refuses it.

use std::fs;

pub(crate) fn check(bytes: &[u8]) {
    let file = crate::command::folder("predict").join("input.json");
    fs::write(&file, bytes).expect("the build's folder can be written");
    let file = file.to_str().expect("a name of ours");
    for kind in [&[file][..], &["--model", file]] {
        let Some(forecast) = crate::command::json("predict", &[kind, &["--workers", "1,2,32"]].concat()) else {
            continue;
        };
        for row in forecast["rows"].as_array().expect("rows") {
            for number in ["step_seconds", "efficiency", "speedup"] {
                assert!(row[number].as_f64().is_some_and(|value| value >= 0.0), "{number} in {row}");
            }
        }
    }
}
