//! The `rmq` command.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    rmq::run(std::env::args_os()).await
}
