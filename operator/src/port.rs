//! TCP ports of the servers in their pods.

/// Name server: clients and brokers.
pub const NAMESRV_REMOTING: i32 = 9876;
/// Name server: health and metrics.
pub const NAMESRV_HEALTH: i32 = 9877;
/// Controller: brokers and `mqadmin`, as Apache's.
pub const CONTROLLER: i32 = 9878;
/// Broker: clients.
pub const BROKER_REMOTING: i32 = 10911;
/// Broker: health and metrics.
pub const BROKER_HEALTH: i32 = 5557;

/// Ports of a name server, by name.
pub const NAMESRV: [(&str, i32); 2] = [("remoting", NAMESRV_REMOTING), ("health", NAMESRV_HEALTH)];
/// Ports of a group's master, by name.
pub const MASTER: [(&str, i32); 2] = [("remoting", BROKER_REMOTING), ("vip", BROKER_REMOTING - 2)];
/// Ports of a broker, by name. Clients use `vip` (two below the first) when they are told to.
pub const BROKER: [(&str, i32); 3] =
    [("remoting", BROKER_REMOTING), ("vip", BROKER_REMOTING - 2), ("health", BROKER_HEALTH)];
