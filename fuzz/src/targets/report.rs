//! Whatever the files of a run folder contain, `sirtaki report` makes a whole page of it or says what is wrong.

use std::fs;

/// Between the files of a folder, as one input.
const NEXT: &str = "\n====\n";

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let folder = crate::command::folder("report");
    let mut parts = text.split(NEXT);
    for name in ["run.json", "steps.jsonl", "profile.json", "plan.json"] {
        match parts.next() {
            Some(part) if !part.is_empty() => {
                fs::write(folder.join(name), part).expect("the build's folder can be written")
            }
            _ => drop(fs::remove_file(folder.join(name))),
        }
    }
    let (page, folder) = (folder.join("report.html"), folder.to_str().expect("a name of ours").to_owned());
    let read = crate::command::json("report", &[&folder]).is_some();
    let written = crate::command::run("report", &[&folder, "-o", page.to_str().expect("a name of ours")]).is_some();
    assert_eq!(read, written);
    if written {
        let page = fs::read_to_string(page).expect("a page");
        assert!(page.trim_end().ends_with("</html>") && !page.contains("NaN"), "{page}");
    }
}
