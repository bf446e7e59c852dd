//! The `sirtaki` command, built next to the programs that it starts in tests.

fn main() -> std::process::ExitCode {
    sirtaki_cli::main()
}
