//! `cargo xtask ptx`: compiles the GPU kernels to the text that programs contain.
//!
//! Uses NVIDIA's run-time compiler of CUDA 11.8, which is a Python package of 20 MB: the oldest version whose drivers
//! are supported, since drivers compile the output of older versions and refuse that of newer ones.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use libloading::Library;
use sha2::{Digest, Sha256};

use crate::{python, shell::Shell};

const COMPILER: &str = "nvidia-cuda-nvrtc-cu11==11.8.89";
const FOLDER: &str = "crates/sirtaki-comm/src/device";
/// The oldest supported GPUs, no fused operations, and integers of 128 bits.
const OPTIONS: [&str; 4] = ["--gpu-architecture=compute_70", "--fmad=false", "--device-int128", "--std=c++14"];

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// Regenerates `reduce.ptx`.
pub(crate) fn write(shell: &Shell) -> Result<()> {
    let folder = shell.root.join(FOLDER);
    let source = fs::read_to_string(folder.join("reduce.cu")).context("cannot read reduce.cu")?;
    let library = find(&python::package(shell, "nvidia.cuda_nvrtc", COMPILER)?.join("lib"))?;
    println!("  {}", library.display());
    let text = compile(&library, &source)?;
    let digest: String = Sha256::digest(&source).iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("// By `cargo xtask ptx` from reduce.cu with SHA-256 {digest}\n{}\n", text.trim_end());
    println!("  {FOLDER}/reduce.ptx: {} lines", text.lines().count());
    fs::write(folder.join("reduce.ptx"), text).context("cannot write reduce.ptx")
}

fn find(folder: &Path) -> Result<PathBuf> {
    let files = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = files.flatten().map(|file| file.path());
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libnvrtc.so"));
    paths.find(is_it).with_context(|| format!("no libnvrtc.so in {}", folder.display()))
}

fn compile(library: &Path, source: &str) -> Result<String> {
    let source = CString::new(source)?;
    let options = OPTIONS.map(CString::new).into_iter().collect::<Result<Vec<_>, _>>()?;
    let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program: Program = std::ptr::null_mut();
    // SAFETY: these are the functions' types in every version of this library; texts end with a zero byte.
    unsafe {
        let library = Library::new(library)?;
        let create = library.get::<Create>(b"nvrtcCreateProgram")?;
        let none = std::ptr::null();
        let code = create(&raw mut program, source.as_ptr(), c"reduce.cu".as_ptr(), 0, none, none);
        if code != 0 {
            bail!("the compiler cannot start (error {code})");
        }
        let compile = library.get::<Compile>(b"nvrtcCompileProgram")?;
        if compile(program, options.len() as c_int, options.as_ptr()) != 0 {
            bail!("reduce.cu: {}", text(&library, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?);
        }
        text(&library, program, "nvrtcGetPTXSize", "nvrtcGetPTX")
    }
}

/// A text that the compiler has about a program.
///
/// # Safety
/// The library must be NVIDIA's compiler and the program one of its own.
unsafe fn text(library: &Library, program: Program, size: &str, get: &str) -> Result<String> {
    let mut length = 0;
    // SAFETY: the caller's promise; the first call tells how many bytes the second writes.
    let bytes = unsafe {
        library.get::<Size>(size.as_bytes())?(program, &raw mut length);
        let mut bytes = vec![0_u8; length];
        if library.get::<Text>(get.as_bytes())?(program, bytes.as_mut_ptr().cast()) != 0 {
            bail!("the compiler does not tell what it made");
        }
        bytes
    };
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
}
