//! Shards of tasks with about equal work, for any scheduler.

use std::{fmt, ops::Range, str::FromStr};

use crate::Tasks;

/// One of several shards, counted from 1 and written `3/100`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Index of the shard, from 1.
    pub number: usize,
    /// Number of shards.
    pub of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err(format!("'{text}' is not a shard; expected I/N with I from 1 to N, such as 3/100")),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Splits the tasks into `of` runs of neighbours, which share programs, of about equal seconds. The
/// split does not depend on which tasks are done.
pub fn shards(tasks: &dyn Tasks, of: usize) -> Vec<Range<usize>> {
    let seconds: Vec<f64> = (0..tasks.len()).map(|task| tasks.seconds(task).max(1e-6)).collect();
    let all: f64 = seconds.iter().sum();
    let (mut ranges, mut begin, mut sum) = (Vec::with_capacity(of), 0, 0.0);
    for number in 1..=of {
        let mut end = begin;
        // A task belongs to the shard that contains its midpoint.
        while end < seconds.len()
            && (number == of || sum + seconds[end] / 2.0 <= all * number as f64 / of as f64)
        {
            sum += seconds[end];
            end += 1;
        }
        ranges.push(begin..end);
        begin = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Watch;

    struct Of(Vec<f64>);

    impl Tasks for Of {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn name(&self, task: usize) -> String {
            task.to_string()
        }
        fn digest(&self, task: usize) -> u128 {
            task as u128
        }
        fn seconds(&self, task: usize) -> f64 {
            self.0[task]
        }
        fn done(&self) -> Vec<bool> {
            vec![false; self.len()]
        }
        fn is_done(&self, _: usize) -> bool {
            false
        }
        fn run(&self, _: usize, _: &dyn Watch) -> Result<bool, String> {
            Ok(true)
        }
    }

    #[test]
    fn shards_hold_every_task_once_and_about_the_same_work() {
        let tasks = Of((0..1000).map(|i| if i < 100 { 10.0 } else { 1.0 }).collect());
        for of in [1, 3, 7, 100, 2000] {
            let cut = shards(&tasks, of);
            assert_eq!(cut.len(), of);
            assert!(cut.iter().flat_map(Clone::clone).eq(0..1000), "{of}");
            let work = |range: &Range<usize>| range.clone().map(|task| tasks.seconds(task)).sum::<f64>();
            let most = cut.iter().map(work).fold(0.0, f64::max);
            assert!(most <= 1900.0 / of as f64 + 10.0, "{of}: {most}");
        }
        assert_eq!(shards(&Of(Vec::new()), 3), vec![0..0; 3]);
    }

    #[test]
    fn a_shard_is_counted_from_one() {
        assert_eq!("3/100".parse(), Ok(Shard { number: 3, of: 100 }));
        for text in ["0/3", "4/3", "3", "a/b", "1/0", "/"] {
            assert!(text.parse::<Shard>().unwrap_err().contains("is not a shard"), "{text}");
        }
    }
}
