//! `rocketmq-broker`

use std::process::ExitCode;
use std::thread::available_parallelism;

use broker::RunningBroker;
use broker::config::{BrokerConfig, NO_EFFECT, check};
use clap::Parser;
use daemon::cli::{ServerArgs, log_configuration};
use daemon::config::Loader;
use daemon::shutdown::Shutdown;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Connections write to the store themselves, one thread at a time: while a slow disk holds that
/// one, another answers everything else.
const THREADS_MIN: usize = 2;

/// Broker of a RocketMQ cluster: stores messages and hands them out.
#[derive(Parser)]
#[command(name = "rocketmq-broker", version, long_version = daemon::build_info::long_version())]
struct Args {
    #[command(flatten)]
    server: ServerArgs,

    /// Name servers, `host:port` joined by semicolons [key: namesrvAddr]
    #[arg(short = 'n', long = "namesrvAddr", value_name = "ADDRESSES")]
    namesrv_addr: Option<String>,
}

fn main() -> ExitCode {
    let args: Args = daemon::cli::parse();
    let mut loader = Loader::<BrokerConfig>::new().no_effect(NO_EFFECT).check(check);
    if let Some(addresses) = &args.namesrv_addr {
        loader = loader.flag("-n", "namesrvAddr", addresses);
    }
    let loaded = match args.server.load(loader) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let log_level = match daemon::telemetry::init(&args.server.log) {
        Ok(log_level) => log_level,
        Err(error) => {
            eprintln!("rocketmq-broker: {error}");
            return ExitCode::from(daemon::EXIT_CONFIG);
        }
    };
    log_configuration(&loaded);
    let threads = available_parallelism().map_or(THREADS_MIN, |cores| cores.get().max(THREADS_MIN));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        runtime.block_on(async {
            let shutdown = Shutdown::on_signals()?;
            let broker = tokio::select! {
                broker = RunningBroker::start(loaded, &shutdown, Some(log_level)) => broker?,
                () = shutdown.requested() => return Ok(shutdown.exit_code()),
            };
            shutdown.requested().await;
            broker.shutdown(&shutdown).await;
            Ok(shutdown.exit_code())
        })
    });
    result.unwrap_or_else(|error| {
        // The errors name their causes themselves.
        tracing::error!("cannot run: {error}");
        ExitCode::FAILURE
    })
}
