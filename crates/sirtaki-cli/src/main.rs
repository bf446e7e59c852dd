//! The `sirtaki` command. Everything is in the library, where tests and other crates can use it.

fn main() -> std::process::ExitCode {
    sirtaki_cli::main()
}
