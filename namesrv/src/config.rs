//! Settings of a name server. Names are Apache's where Apache has the setting.

use std::path::PathBuf;
use std::time::Duration;

use daemon::config::NoEffect;

daemon::config! {
    /// Settings of a name server.
    pub struct NamesrvConfig {
        /// Address that clients and brokers connect to.
        bind_address("bindAddress"): String = "0.0.0.0".to_owned();
        /// TCP port that clients and brokers connect to.
        listen_port("listenPort"): u16 = 9876, range(0, 65_535), important;
        /// TCP port of metrics and health checks; 0 switches them off.
        health_port("healthPort"): u16 = 9877, range(0, 65_535), important;
        /// File that keeps key-value settings.
        kv_config_path("kvConfigPath"): PathBuf = default_kv_config_path(), important;
        /// How often brokers that fell silent are looked for.
        scan_not_active_broker_interval("scanNotActiveBrokerInterval"): Duration =
            Duration::from_secs(10), range(100, 3_600_000);
        /// How long a broker may be silent, unless it asks for another time when it registers.
        broker_channel_expired_time("brokerChannelExpiredTime"): Duration =
            Duration::from_secs(120), range(1_000, 3_600_000), important;
        /// Routes carry the order of queues that the key-value settings have for a topic.
        order_message_enable("orderMessageEnable"): bool = false, hot;
        /// Registering brokers are told which topics are ordered.
        return_order_topic_config_to_broker("returnOrderTopicConfigToBroker"): bool = true, hot;
        /// A registration removes the topics that it does not name.
        delete_topic_with_broker_registration("deleteTopicWithBrokerRegistration"): bool = false,
            hot;
        /// The list of all topics may be asked for.
        enable_all_topic_list("enableAllTopicList"): bool = true, hot;
        /// Answers no route queries at all in the first time after its start, as Apache's does.
        need_wait_for_service("needWaitForService"): bool = false;
        /// The first time after its start, in seconds. In it, queries for topics that nobody has
        /// registered yet are answered with "not ready" instead of "no such topic".
        wait_seconds_for_service("waitSecondsForService"): u32 = 45, range(0, 3_600);
        /// Connections at once; more are closed.
        server_max_connections("serverMaxConnections"): usize = 50_000, range(1, 1_000_000);
        /// Largest frame in bytes.
        max_frame_bytes("frameMaxLength"): usize = 16_777_216, range(65_536, 1_073_741_824);
        /// A connection that is silent this long is closed.
        server_channel_max_idle_time_seconds("serverChannelMaxIdleTimeSeconds"): u32 = 120,
            range(1, 86_400);
    }
}

fn default_kv_config_path() -> PathBuf {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
    home.join("namesrv").join("kvConfig.json")
}

const THREADS: &str = "requests are not bound to thread pools";
const NETTY: &str = "there is no Netty";

/// Settings of Apache's name server that have no counterpart here.
pub const NO_EFFECT: &[NoEffect] = &[
    NoEffect { key: "rocketmqHome", why: "nothing is read from there" },
    NoEffect { key: "configStorePath", why: "settings are not written back" },
    NoEffect { key: "productEnvName", why: "nothing depends on it" },
    NoEffect { key: "clusterTest", why: "nothing depends on it" },
    NoEffect { key: "clientRequestThreadPoolNums", why: THREADS },
    NoEffect { key: "defaultThreadPoolNums", why: THREADS },
    NoEffect { key: "clientRequestThreadPoolQueueCapacity", why: THREADS },
    NoEffect { key: "defaultThreadPoolQueueCapacity", why: THREADS },
    NoEffect { key: "unRegisterBrokerQueueCapacity", why: "brokers are removed at once" },
    NoEffect { key: "serverWorkerThreads", why: THREADS },
    NoEffect { key: "serverCallbackExecutorThreads", why: THREADS },
    NoEffect { key: "serverSelectorThreads", why: THREADS },
    NoEffect { key: "serverOnewaySemaphoreValue", why: THREADS },
    NoEffect { key: "serverAsyncSemaphoreValue", why: THREADS },
    NoEffect { key: "serverSocketSndBufSize", why: NETTY },
    NoEffect { key: "serverSocketRcvBufSize", why: NETTY },
    NoEffect { key: "serverSocketBacklog", why: NETTY },
    NoEffect { key: "serverPooledByteBufAllocatorEnable", why: NETTY },
    NoEffect { key: "useEpollNativeSelector", why: NETTY },
];
