//! How much goes in and out, over the last seconds and since midnight, for administrators.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;

/// Time between two looks at the counters.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Samples kept: ten minutes.
const SAMPLES: usize = 60;
/// Topics and groups that are counted at most.
const SERIES_MAX: usize = 20_000;

/// A counter and what it was before.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    total: u64,
    /// What it was at each look, newest last.
    samples: VecDeque<u64>,
}

impl Rate {
    fn sample(&mut self) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(self.total);
    }

    /// Per second, between the newest look and one so many looks before.
    fn per_second(&self, looks: usize) -> f64 {
        let looks = looks.min(self.samples.len().saturating_sub(1));
        let Some(newest) = self.samples.back() else { return 0.0 };
        let before = self.samples.iter().rev().nth(looks).copied().unwrap_or_default();
        let seconds = SAMPLE_INTERVAL.as_secs_f64() * looks as f64;
        if looks == 0 { 0.0 } else { newest.saturating_sub(before) as f64 / seconds }
    }
}

/// Counters by key.
#[derive(Debug)]
pub(crate) struct Rates<K> {
    rates: Mutex<HashMap<K, Rate>>,
}

impl<K> Default for Rates<K> {
    fn default() -> Self {
        Self { rates: Mutex::default() }
    }
}

impl<K: Eq + Hash> Rates<K> {
    pub(crate) fn add<Q>(&self, key: &Q, count: usize)
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let mut rates = self.rates.lock();
        if let Some(rate) = rates.get_mut(key) {
            rate.total += count as u64;
        } else if rates.len() < SERIES_MAX {
            rates.insert(key.to_owned(), Rate { total: count as u64, ..Rate::default() });
        }
    }

    /// Per second over the last minute.
    pub(crate) fn per_second<Q>(&self, key: &Q) -> f64
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.rates.lock().get(key).map_or(0.0, |rate| rate.per_second(6))
    }

    pub(crate) fn retain(&self, mut keeps: impl FnMut(&K) -> bool) {
        self.rates.lock().retain(|key, _| keeps(key));
    }

    pub(crate) fn sample(&self) {
        self.rates.lock().values_mut().for_each(Rate::sample);
    }
}

/// What is counted of the broker as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Total {
    Put,
    PutBytes,
    Get,
    GetBytes,
    /// Pulls that found messages.
    GetFound,
    /// Pulls that found none.
    GetMiss,
}

/// Totals at the last two midnights.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Midnights {
    /// Number of the day at the last look.
    day: Option<i64>,
    pub(crate) put_yesterday: u64,
    pub(crate) put_today: u64,
    pub(crate) get_yesterday: u64,
    pub(crate) get_today: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    totals: Mutex<HashMap<Total, Rate>>,
    /// Messages put by topic.
    pub(crate) topics: Rates<String>,
    /// Messages consumed by `topic@group`.
    pub(crate) groups: Rates<String>,
    midnights: Mutex<Midnights>,
}

impl Throughput {
    pub(crate) fn add(&self, total: Total, count: usize) {
        self.totals.lock().entry(total).or_default().total += count as u64;
    }

    pub(crate) fn total(&self, total: Total) -> u64 {
        self.totals.lock().get(&total).map_or(0, |rate| rate.total)
    }

    /// Per second over ten seconds, a minute and ten minutes, as Apache's broker prints them.
    pub(crate) fn rates(&self, total: Total) -> String {
        let totals = self.totals.lock();
        let per_second = |looks| totals.get(&total).map_or(0.0, |rate| rate.per_second(looks));
        format!("{:.2} {:.2} {:.2}", per_second(1), per_second(6), per_second(SAMPLES))
    }

    pub(crate) fn midnights(&self) -> Midnights {
        *self.midnights.lock()
    }

    /// To be called each [`SAMPLE_INTERVAL`]; `day` is the number of the day in local time.
    pub(crate) fn sample(&self, day: i64) {
        self.totals.lock().values_mut().for_each(Rate::sample);
        self.topics.sample();
        self.groups.sample();
        let (put, get) = (self.total(Total::Put), self.total(Total::Get));
        let mut midnights = self.midnights.lock();
        let is_midnight = midnights.day.replace(day).is_some_and(|before| before != day);
        if is_midnight {
            *midnights = Midnights {
                day: Some(day),
                put_yesterday: midnights.put_today,
                put_today: put,
                get_yesterday: midnights.get_today,
                get_today: get,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_looks() {
        let throughput = Throughput::default();
        assert_eq!(throughput.rates(Total::Put), "0.00 0.00 0.00");
        throughput.add(Total::Put, 0);
        throughput.sample(1);
        throughput.add(Total::Put, 100);
        throughput.topics.add("t", 30);
        throughput.sample(1);
        throughput.topics.add("t", 30);
        throughput.sample(1);
        assert_eq!(throughput.rates(Total::Put), "0.00 5.00 5.00");
        assert_eq!(throughput.topics.per_second("t"), 3.0);
        assert_eq!(throughput.topics.per_second("u"), 0.0);
        throughput.topics.retain(|topic| topic != "t");
        assert_eq!(throughput.topics.per_second("t"), 0.0);
        throughput.sample(2);
        throughput.add(Total::Put, 1);
        assert_eq!(throughput.midnights().put_yesterday, 0);
        let midnights = throughput.midnights();
        assert_eq!((midnights.put_today, throughput.total(Total::Put)), (100, 101));
    }
}
