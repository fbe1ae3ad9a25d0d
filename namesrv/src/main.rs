//! `rocketmq-namesrv`

use std::process::ExitCode;

use clap::Parser;
use daemon::cli::{ServerArgs, log_configuration};
use daemon::config::Loader;
use daemon::shutdown::Shutdown;
use namesrv::NameServer;
use namesrv::config::{NO_EFFECT, NamesrvConfig};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Name server of a RocketMQ cluster: tells clients which brokers serve a topic.
#[derive(Parser)]
#[command(name = "rocketmq-namesrv", version, long_version = daemon::build_info::long_version())]
struct Args {
    #[command(flatten)]
    server: ServerArgs,

    /// TCP port that clients and brokers connect to [key: listenPort, default: 9876]
    #[arg(long, value_name = "PORT")]
    port: Option<String>,

    /// TCP port of metrics and health checks, 0 for none [key: healthPort, default: 9877]
    #[arg(long, value_name = "PORT")]
    health_port: Option<String>,
}

fn main() -> ExitCode {
    let args: Args = daemon::cli::parse();
    let mut loader = Loader::<NamesrvConfig>::new().no_effect(NO_EFFECT);
    let ports =
        [("--port", "listenPort", &args.port), ("--health-port", "healthPort", &args.health_port)];
    for (flag, key, value) in ports {
        if let Some(value) = value {
            loader = loader.flag(flag, key, value);
        }
    }
    let loaded = match args.server.load(loader) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let log_level = match daemon::telemetry::init(&args.server.log) {
        Ok(log_level) => log_level,
        Err(error) => {
            eprintln!("rocketmq-namesrv: {error}");
            return ExitCode::from(daemon::EXIT_CONFIG);
        }
    };
    log_configuration(&loaded);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        runtime.block_on(async {
            let shutdown = Shutdown::on_signals()?;
            let server = NameServer::start(loaded, &shutdown, Some(log_level)).await?;
            shutdown.requested().await;
            server.shutdown(&shutdown).await;
            Ok(shutdown.exit_code())
        })
    });
    result.unwrap_or_else(|error| {
        tracing::error!("cannot run: {error}");
        ExitCode::FAILURE
    })
}
