//! Rules that can be broken on purpose, to prove that the simulator notices.
//!
//! Without the feature `planted-bugs` every rule is kept and nothing of this is left in a program.

/// A rule of this crate. Its name says what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Acknowledgement counts sets that are still being proposed.
    CountProposals,
    /// Acknowledgement waits for every member, not for one.
    WaitForAll,
    /// Acknowledgements of another epoch's hand-shake do not count.
    CountOwnEpochOnly,
    /// A master with too few members in sync acknowledges nothing.
    MinInSync,
    /// A replica obeys no lower epoch.
    RefuseLowerEpoch,
    /// A promised epoch is persisted before it is acted on.
    PersistPromise,
    /// A log is cut where both epoch tables agree for the last time.
    CutAtCommonPoint,
    /// An epoch's start is persisted before its first bytes are appended.
    PersistEpochStart,
    /// Readers see nothing above the confirm offset.
    ReadConfirmedOnly,
    /// A slave joins the in-sync set only after it has caught up in this epoch.
    JoinCaughtUp,
    /// Only a member of the recorded in-sync set is elected.
    ElectFromSet,
    /// A disk with another identity leaves the in-sync set.
    CheckStoreId,
    /// A disk that was rolled back leaves the in-sync set.
    CheckOpenCount,
    /// A log that ends below its floor, or may have lost its tail, is not elected.
    CheckTail,
    /// A change of the in-sync set names the epochs that it builds on.
    CheckAlterEpochs,
    /// A change of the in-sync set names the runs of its members.
    CheckAlterRuns,
    /// The master of record loses its role when it starts anew.
    RestartEndsMastership,
    /// A registration names the run that it replaces.
    CheckReplacedRun,
    /// A record that is older than what replicas have promised is not believed.
    DetectRegression,
    /// Peers that hear the master prevent an election.
    PeerVeto,
    /// A controller that was paused forgets how old its news is.
    GapRule,
    /// A promoted slave of the asynchronous profile waits until its promise has run out.
    WaitOutPromise,
    /// A master of the asynchronous profile acknowledges only while it holds promises.
    NeedPromises,
}

/// Which rules are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rules {
    /// The rule that is broken.
    #[cfg(feature = "planted-bugs")]
    pub broken: Option<Rule>,
}

impl Rules {
    /// Whether `rule` is kept.
    #[cfg(feature = "planted-bugs")]
    #[must_use]
    pub fn keep(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// Whether `rule` is kept.
    #[cfg(not(feature = "planted-bugs"))]
    #[must_use]
    pub const fn keep(self, _rule: Rule) -> bool {
        true
    }
}
