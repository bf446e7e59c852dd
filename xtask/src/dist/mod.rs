//! `cargo xtask dist`: everything that a release consists of, into `target/dist`.
//!
//! Binary and wheel are linked by zig against a C library from 2012, because computing centres are slow to upgrade. A
//! static binary was rejected: MPI, NCCL and ONNX Runtime are loaded at run time, which a static C library cannot do.
//! Nothing in the files depends on when or where they were built, so that whoever builds a release again can compare
//! checksums; `--twice` does so, in another folder.

mod bill;
mod recipes;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) use self::recipes::check as check_recipes;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{
    python,
    shell::{Call, Shell},
};

const PLACE: &str = "target/dist";
/// The machines that releases are for.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Every shell that completions are made for.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/sirtaki"),
    ("zsh", "share/zsh/site-functions/_sirtaki"),
    ("fish", "share/fish/vendor_completions.d/sirtaki.fish"),
];

/// Makes all files; with `twice`, makes them again from a clone in another folder and compares.
pub(crate) fn make(shell: &Shell, twice: bool) -> Result<()> {
    let changed = shell.read(&Call::new("git").args(["status", "--porcelain", "--untracked-files=no"]))?;
    if !changed.trim().is_empty() {
        bail!("a release is made of what is committed, and these files are not:\n{changed}hint: commit or stash them");
    }
    let sums = release(shell)?;
    print!("{sums}");
    if !twice {
        return Ok(());
    }
    let clone = shell.root.join("target/dist-again");
    if clone.exists() {
        fs::remove_dir_all(&clone)?;
    }
    let (from, to) = (shell.root.display().to_string(), clone.display().to_string());
    shell.run(Call::new("git").args(["clone", "--quiet", &from, &to]))?;
    let again = release(&Shell { root: clone })?;
    if sums != again {
        bail!("the second build differs:\n{again}");
    }
    println!("  built twice, in two folders: the same bits");
    Ok(())
}

/// Makes all files and returns their checksums.
fn release(shell: &Shell) -> Result<String> {
    let place = shell.root.join(PLACE);
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(&place)?;
    let (here, installed) = (shell.host()?, shell.read(&Call::new("rustc").args(["--print", "sysroot"]))?);
    for target in TARGETS {
        if !Path::new(installed.trim()).join("lib/rustlib").join(target).exists() {
            println!("  left out: {target}, for which this compiler has no library; `rustup target add {target}`");
            continue;
        }
        let flags = Flags::new(shell)?;
        wheel(shell, &flags, target, &place)?;
        let binary = binary(shell, &flags, target)?;
        // Pages and completions are printed by a binary that runs here.
        if target == here {
            binaries(shell, &binary, target, &place)?;
        } else {
            let name = format!("sirtaki-{VERSION}-{target}");
            fs::copy(&binary, place.join(name))?;
        }
    }
    source(shell, &place)?;
    fs::write(place.join(format!("sirtaki-{VERSION}.cdx.json")), bill::of_materials(shell)?)?;
    checksums(&place)
}

/// What makes a build independent of its folder and time.
struct Flags {
    rust: String,
    c: String,
    time: String,
}

impl Flags {
    fn new(shell: &Shell) -> Result<Self> {
        let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
        let places = [(shell.root.display().to_string(), "sirtaki"), (home.context("HOME is not set")?, "cargo")];
        let join = |option: &str| -> String {
            places.iter().map(|(from, to)| format!("{option}={from}=/{to}")).collect::<Vec<_>>().join(" ")
        };
        let time = shell.read(&Call::new("git").args(["log", "-1", "--format=%ct"]))?.trim().to_owned();
        Ok(Self { rust: join("--remap-path-prefix"), c: join("-ffile-prefix-map"), time })
    }

    fn apply(&self, call: Call) -> Call {
        let call = call.env("RUSTFLAGS", &self.rust).env("CFLAGS", &self.c).env("SOURCE_DATE_EPOCH", &self.time);
        call.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo").env("CARGO_INCREMENTAL", "0")
    }
}

fn wheel(shell: &Shell, flags: &Flags, target: &str, place: &Path) -> Result<()> {
    let wheel = shell.root.join(python::wheel_for(shell, target, &|call| flags.apply(call))?);
    fs::rename(&wheel, place.join(wheel.file_name().context("a wheel has a name")?))?;
    Ok(())
}

fn binary(shell: &Shell, flags: &Flags, target: &str) -> Result<PathBuf> {
    let build = python::zigbuild(shell)?.args(["--release", "--locked", "--quiet", "--package", "sirtaki-cli"]);
    shell.run(flags.apply(build.args(["--target", &format!("{target}.{}", python::OLDEST_C_LIBRARY)])))?;
    Ok(shell.root.join("target").join(target).join("release/sirtaki"))
}

/// The archive that is unpacked into a prefix such as `/usr/local`: command, manual pages, completions, digits, licences.
fn binaries(shell: &Shell, binary: &Path, target: &str, place: &Path) -> Result<()> {
    let name = format!("sirtaki-{VERSION}-{target}");
    let folder = place.join(&name);
    let file = |path: &str| -> Result<PathBuf> {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        Ok(path)
    };
    fs::copy(binary, file("bin/sirtaki")?)?;
    let sirtaki = Call::new(binary.display().to_string());
    for (name, path) in SHELLS {
        fs::write(file(path)?, shell.read(&sirtaki.clone().args(["completions", name]))?)?;
    }
    let pages = folder.join("share/man/man1").display().to_string();
    shell.run(sirtaki.args(["man", "--all", &pages]))?;
    for entry in fs::read_dir(shell.root.join("data/mnist"))? {
        let from = entry?.path();
        let name = from.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        fs::copy(&from, file(&format!("share/sirtaki/mnist/{name}"))?)?;
    }
    for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(shell.root.join(name), file(&format!("share/doc/sirtaki/{name}"))?)?;
    }
    archive(shell, place, &name)?;
    Ok(fs::remove_dir_all(folder)?)
}

/// Packs a folder of `place` so that only its contents decide about the bits.
fn archive(shell: &Shell, place: &Path, name: &str) -> Result<()> {
    let time = shell.read(&Call::new("git").args(["log", "-1", "--format=%ct"]))?;
    let place = place.display();
    let pack = format!(
        "tar --sort=name --mtime=@{} --owner=0 --group=0 --numeric-owner --mode=u+w,go-w -C '{place}' -cf - '{name}' \
         | gzip -9n > '{place}/{name}.tar.gz'",
        time.trim()
    );
    shell.run(Call::new("sh").args(["-c", &pack]))
}

/// What is committed.
fn source(shell: &Shell, place: &Path) -> Result<()> {
    let name = format!("sirtaki-{VERSION}");
    let file = place.join(format!("{name}-source.tar.gz")).display().to_string();
    let pack = format!("git archive --format=tar --prefix='{name}/' HEAD | gzip -9n > '{file}'");
    shell.run(Call::new("sh").args(["-c", &pack]))
}

/// Writes `SHA256SUMS`, which `sha256sum --check` reads, and returns its lines.
fn checksums(place: &Path) -> Result<String> {
    let mut names: Vec<_> = fs::read_dir(place)?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let mut lines = String::new();
    for name in names {
        let sum = Sha256::digest(fs::read(place.join(&name))?);
        let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        lines.push_str(&format!("{sum}  {}\n", name.to_string_lossy()));
    }
    fs::write(place.join("SHA256SUMS"), &lines)?;
    Ok(lines)
}
