//! The `treeline` binary: the built-in policies behind the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    treeline::cli::main_with(treeline_policies::Registry::builtin())
}
