use daemon::shutdown::Shutdown;
use operator::cli::{Cli, Command, RunArgs};
use operator::run::RunError;
use std::process::ExitCode;
use std::time::Duration;

/// What still runs after the Lease was released has this long.
const DRAIN: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let mut cli: Cli = daemon::cli::parse();
    if matches!(cli.command, Command::Local(_)) {
        // Local mode tells its user in plain lines that it stops.
        cli.log.log_level.push_str(",daemon::shutdown=warn");
    }
    let log = match daemon::telemetry::init(&cli.log) {
        Ok(log) => log,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(daemon::EXIT_CONFIG);
        }
    };
    let result = match cli.command {
        Command::Run(args) => run(*args, log),
        Command::Local(args) => local(&args),
        Command::Crd => {
            let documents: Vec<_> = crds::yaml().into_iter().map(|(_, text)| text).collect();
            print!("{}", documents.join("---\n"));
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("rocketmq-operator: {error}");
        let configuration =
            error.downcast_ref::<RunError>().is_some_and(RunError::is_configuration);
        if configuration { ExitCode::from(daemon::EXIT_CONFIG) } else { ExitCode::FAILURE }
    })
}

#[tokio::main(worker_threads = 2)]
async fn run(args: RunArgs, log: daemon::telemetry::LogLevel) -> anyhow::Result<ExitCode> {
    let shutdown = Shutdown::on_signals()?;
    operator::run::run(args, log, &shutdown).await?;
    shutdown.tasks_ended(DRAIN).await;
    Ok(shutdown.exit_code())
}

#[tokio::main(worker_threads = 2)]
async fn local(args: &operator::local::Args) -> anyhow::Result<ExitCode> {
    operator::local::run(args).await.or_else(|error| {
        eprintln!("rocketmq-operator: {error}");
        Ok(error.exit_code())
    })
}
