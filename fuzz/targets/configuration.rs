//! Configuration: properties read as they were printed, every wrong line has an error, and a change
//! of a running server applies as a whole or not at all.
#![no_main]

use std::sync::OnceLock;

use broker::config::{BrokerConfig, NO_EFFECT, check};
use daemon::config::{Live, Loader, Print};
use daemon::properties;
use libfuzzer_sys::fuzz_target;
use namesrv::config::NamesrvConfig;
use protocol::{subscription, topic_name};
use store::delay_level::DelayLevels;

fn loader() -> Loader<BrokerConfig> {
    Loader::new().no_effect(NO_EFFECT).check(check)
}

/// Loads the entries as if they were given as flags.
fn load(entries: &[properties::Entry]) {
    let mut broker = loader();
    let mut namesrv = Loader::<NamesrvConfig>::new();
    for entry in entries {
        broker = broker.flag("--set", &entry.key, &entry.value);
        namesrv = namesrv.flag("--set", &entry.key, &entry.value);
    }
    match broker.load() {
        Ok(loaded) => {
            let printed = loaded.print(Print::All);
            properties::parse(printed.as_bytes()).expect("what is printed can be read");
            let config = &loaded.config;
            let _ = (config.store_config(), config.delay_levels(), config.fast_port());
        }
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
    if let Err(errors) = namesrv.load() {
        assert!(!errors.to_string().is_empty());
    }
}

fn update(text: &[u8]) {
    static LOADED: OnceLock<String> = OnceLock::new();
    let live = Live::new(loader().load().expect("the defaults are right"));
    let before = LOADED.get_or_init(|| live.print());
    match live.update(text) {
        Ok(changes) => assert_eq!(changes.is_empty(), live.print() == *before),
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            assert_eq!(live.print(), *before, "a refused change has changed something");
        }
    }
}

fuzz_target!(|input: &[u8]| {
    match properties::parse(input) {
        Ok(entries) => {
            let pairs = entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()));
            let printed = properties::print(pairs.clone());
            let again = properties::parse(printed.as_bytes()).expect("what is printed can be read");
            let again = again.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()));
            assert!(again.eq(pairs), "{printed:?}");
            load(&entries);
        }
        Err(errors) => assert!(!errors.is_empty()),
    }
    update(input);
    let text = String::from_utf8_lossy(input);
    let _ = (topic_name::validate_topic(&text), topic_name::validate_group(&text));
    let _ = DelayLevels::parse(&text);
    let _ = subscription::SubscriptionData::by_tags("t", &text, 1);
});
