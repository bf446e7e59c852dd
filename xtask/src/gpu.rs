//! Tests and figures on a machine with a GPU.
//!
//! These machines often have neither cargo nor a network, so everything they need is packed into one folder first: the
//! wheel, what its tests need besides PyTorch, and a script that runs everything. If cargo runs on such a machine, it
//! makes and uses the same folder, so there is only one way.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    python, python_tests,
    shell::{Call, Shell, has},
};

/// Where the folder and its archive are made.
const PLACE: &str = "target/gpu-bundle";
const NAME: &str = "sirtaki-gpu";
/// Pure Python packages that the tests need, none of which needs others.
const NEEDS: [&str; 6] = ["cloudpickle", "iniconfig", "packaging", "pluggy", "pygments", "pytest"];
const LARGEST: u64 = 60 << 20;

/// Runs the tests; fails if there is no GPU.
pub(crate) fn test(shell: &Shell) -> Result<()> {
    run(shell, "tests")
}

/// Measures; fails if there is no GPU.
pub(crate) fn bench(shell: &Shell) -> Result<()> {
    run(shell, "bench")
}

fn run(shell: &Shell, what: &str) -> Result<()> {
    if !has("nvidia-smi") || !shell.succeeds(&Call::new("nvidia-smi").args(["-L"])) {
        bail!(
            "there is no GPU here, or no driver for it: `nvidia-smi -L` finds none\n\
             hint: `cargo xtask gpu-bundle` packs everything for a machine that has one"
        );
    }
    let folder = bundle(shell)?;
    let script = folder.join("run.sh").display().to_string();
    let python = python_tests::environment(shell)?;
    shell.run(Call::new("sh").args([script.as_str(), what]).env("PYTHON", python))
}

/// Packs the folder and its archive, and returns the folder.
pub(crate) fn bundle(shell: &Shell) -> Result<PathBuf> {
    let place = shell.root.join(PLACE);
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    let folder = place.join(NAME);
    let wheels = folder.join("wheels");
    fs::create_dir_all(&wheels)?;
    let wheel = shell.root.join(python::wheel(shell)?);
    fs::copy(&wheel, wheels.join(wheel.file_name().context("a wheel has a name")?))?;
    python::download(shell, &wheels, &NEEDS)?;
    copy(&shell.root.join("python/tests/gpu"), &folder.join("tests"))?;
    copy(&shell.root.join("benches/gpu"), &folder.join("bench"))?;
    fs::create_dir_all(folder.join("volume"))?;
    fs::copy(shell.root.join("benches/volume/msd.py"), folder.join("volume/msd.py"))?;
    for script in ["run.sh", "rank.sh"] {
        fs::rename(folder.join("tests").join(script), folder.join(script))?;
    }
    let archive = place.join(format!("{NAME}.tar.gz"));
    let pack =
        Call::new("tar").args(["-czf", &archive.display().to_string(), "-C", &place.display().to_string(), NAME]);
    shell.run(pack)?;
    let size = fs::metadata(&archive)?.len();
    println!(
        "  {PLACE}/{NAME}.tar.gz: {:.1} MiB; unpack it and run `sh {NAME}/run.sh`",
        size as f64 / f64::from(1 << 20)
    );
    if size > LARGEST {
        bail!("the archive must have at most {} MiB", LARGEST >> 20);
    }
    Ok(folder)
}

/// Copies a folder, without what Python leaves in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if !entry.file_type()?.is_dir() {
            fs::copy(entry.path(), target)?;
        } else if entry.file_name() != "__pycache__" {
            copy(&entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_leaves_is_not_packed() {
        let from = std::env::temp_dir().join(format!("sirtaki-gpu-{}", std::process::id()));
        let to = from.with_extension("copy");
        for folder in ["ranks/__pycache__", "ranks/inner"] {
            fs::create_dir_all(from.join(folder)).unwrap();
        }
        for file in ["run.sh", "ranks/test.py", "ranks/inner/a.py", "ranks/__pycache__/test.pyc"] {
            fs::write(from.join(file), file).unwrap();
        }
        copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("ranks/inner/a.py")).unwrap(), "ranks/inner/a.py");
        assert!(to.join("run.sh").is_file() && !to.join("ranks/__pycache__").exists());
        fs::remove_dir_all(from).unwrap();
        fs::remove_dir_all(to).unwrap();
    }
}
