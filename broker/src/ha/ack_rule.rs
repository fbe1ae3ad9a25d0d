//! How many replicas must have a message before it is confirmed (keys `inSyncReplicas` and its
//! neighbours).

use crate::config::{BrokerConfig, BrokerRole};

/// SYNC_MASTER waits for one slave at least, as the name says; Apache's broker of version 5 waits
/// for none unless `inSyncReplicas` is 2 or more.
const REPLICAS_SYNC_MIN: usize = 2;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AckRule {
    is_sync: bool,
    in_sync: usize,
    in_sync_min: usize,
    is_auto: bool,
    is_all: bool,
}

/// What the rule says of slaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirmed {
    /// Nobody is waited for.
    Everything,
    /// There are too few slaves to wait for.
    TooFew,
    /// Enough replicas have all before this offset.
    To(i64),
}

impl AckRule {
    pub(crate) fn new(settings: &BrokerConfig) -> Self {
        Self {
            is_sync: settings.broker_role == BrokerRole::SyncMaster,
            in_sync: settings.in_sync_replicas.max(REPLICAS_SYNC_MIN),
            in_sync_min: settings.min_in_sync_replicas,
            is_auto: settings.enable_auto_in_sync_replicas,
            is_all: settings.all_ack_in_sync_state_set,
        }
    }

    /// Whether a sender may have to wait at all.
    pub(crate) fn is_sync(&self) -> bool {
        self.is_sync
    }

    /// Whether messages are refused while `slaves` are in sync.
    pub(crate) fn refuses(&self, slaves: usize) -> bool {
        self.is_sync && slaves + 1 < self.in_sync_min
    }

    /// What is confirmed when the slaves in sync have acknowledged so much.
    pub(crate) fn confirmed(&self, acks: &mut [i64]) -> Confirmed {
        if !self.is_sync {
            return Confirmed::Everything;
        }
        let alive = acks.len() + 1;
        let mut need = self.in_sync;
        if self.is_auto {
            need = need.min(alive).max(self.in_sync_min);
        }
        if self.is_all {
            need = need.max(alive);
        }
        if need <= 1 {
            return Confirmed::Everything;
        }
        acks.sort_unstable_by(|one, other| other.cmp(one));
        // The master has everything.
        acks.get(need - 2).map_or(Confirmed::TooFew, |ack| Confirmed::To(*ack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(in_sync: usize, in_sync_min: usize, is_auto: bool, is_all: bool) -> AckRule {
        AckRule { is_sync: true, in_sync, in_sync_min, is_auto, is_all }
    }

    #[test]
    fn the_slowest_of_those_that_are_needed_decides() {
        use Confirmed::{Everything, To, TooFew};
        let table: [(AckRule, &[i64], Confirmed); 11] = [
            (rule(2, 1, false, false), &[], TooFew),
            (rule(2, 1, false, false), &[5], To(5)),
            (rule(2, 1, false, false), &[5, 9, 7], To(9)),
            (rule(3, 1, false, false), &[5, 9, 7], To(7)),
            (rule(3, 1, false, false), &[5], TooFew),
            (rule(3, 1, true, false), &[5], To(5)),
            (rule(2, 1, true, false), &[], Everything),
            (rule(2, 2, true, false), &[], TooFew),
            (rule(2, 1, false, true), &[5, 9, 7], To(5)),
            (rule(2, 1, false, true), &[], TooFew),
            (AckRule { is_sync: false, ..rule(3, 3, false, true) }, &[5], Everything),
        ];
        for (rule, acks, confirmed) in table {
            assert_eq!(rule.confirmed(&mut acks.to_vec()), confirmed, "{rule:?} {acks:?}");
        }
        assert!(rule(3, 2, true, false).refuses(0) && !rule(3, 2, true, false).refuses(1));
        let asynchronous = AckRule { is_sync: false, ..rule(3, 2, false, false) };
        assert!(!asynchronous.refuses(0));
    }

    #[test]
    fn a_synchronous_master_waits_for_one_slave() {
        let settings =
            BrokerConfig { broker_role: BrokerRole::SyncMaster, ..BrokerConfig::default() };
        assert_eq!(AckRule::new(&settings), rule(2, 1, false, false));
    }
}
