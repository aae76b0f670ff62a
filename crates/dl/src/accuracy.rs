//! Validation accuracy by batch size, as recorded by `tools/record_accuracy.py`.

use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

/// Training runs of one network at several batch sizes, all with the same number of epochs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accuracy {
    /// Data set.
    pub dataset: String,
    /// Network name.
    pub network: String,
    /// Number of training images.
    pub training_images: u64,
    /// Number of validation images.
    pub validation_images: u64,
    /// Number of epochs.
    pub epochs: u64,
    /// Runs, by batch size and seed.
    pub runs: Vec<AccuracyRun>,
}

/// One training run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccuracyRun {
    /// Images of a batch.
    pub batch: u64,
    /// Seed of the initial weights and the image order.
    pub seed: u64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Validation accuracy after each epoch, 0 to 1.
    pub validation: Vec<f64>,
    /// Mean loss in each epoch.
    pub training_loss: Vec<f64>,
}

/// Summary of the runs of one batch size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccuracySummary {
    /// Images of a batch.
    pub batch: u64,
    /// Mean accuracy after each epoch.
    pub curve: Vec<f64>,
    /// Mean accuracy after the last epoch.
    pub last: f64,
    /// Minimum and maximum of the last accuracies.
    pub range: [f64; 2],
    /// Mean absolute change between epochs at the peak learning rate.
    pub jitter: f64,
}

impl RecordKind for Accuracy {
    const KIND: &'static str = "accuracy";
    const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        if self.runs.is_empty() {
            return Err("it has no runs".to_owned());
        }
        self.runs.iter().try_for_each(|run| {
            run.check(self.epochs).map_err(|why| format!("batch {}, seed {}: {why}", run.batch, run.seed))
        })
    }
}

impl AccuracyRun {
    fn check(&self, epochs: u64) -> Result<(), String> {
        for (what, values) in [("accuracies", &self.validation), ("losses", &self.training_loss)] {
            if values.len() as u64 != epochs {
                return Err(format!("it has {} {what} for {epochs} epochs", values.len()));
            }
        }
        if self.batch == 0 {
            return Err("a batch has at least one image".to_owned());
        }
        match self.validation.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            Some(share) => Err(format!("{share} is no share of the images; shares are from 0 to 1")),
            None => Ok(()),
        }
    }
}

impl Accuracy {
    /// Returns a summary per batch size, smallest first.
    pub fn summaries(&self) -> Vec<AccuracySummary> {
        let mut batches: Vec<u64> = self.runs.iter().map(|run| run.batch).collect();
        batches.sort_unstable();
        batches.dedup();
        batches.into_iter().map(|batch| self.summary(batch)).collect()
    }

    fn summary(&self, batch: u64) -> AccuracySummary {
        let runs: Vec<&AccuracyRun> = self.runs.iter().filter(|run| run.batch == batch).collect();
        let mean = |of: &dyn Fn(&AccuracyRun) -> f64| {
            runs.iter().map(|run| of(run)).sum::<f64>() / runs.len() as f64
        };
        let last = |run: &AccuracyRun| run.validation.last().copied().unwrap_or(0.0);
        let at = |epoch: usize| mean(&|run| run.validation.get(epoch).copied().unwrap_or(0.0));
        let lasts = runs.iter().map(|run| last(run));
        AccuracySummary {
            batch,
            curve: (0..self.epochs as usize).map(at).collect(),
            last: mean(&last),
            range: [lasts.clone().fold(1.0, f64::min), lasts.fold(0.0, f64::max)],
            jitter: mean(&jitter),
        }
    }
}

/// Returns the mean absolute change between epochs from the second to the middle one, after which
/// the learning rate falls.
fn jitter(run: &AccuracyRun) -> f64 {
    let even = run.validation.get(1..run.validation.len() / 2).unwrap_or(&[]);
    let changes = even.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    changes.sum::<f64>() / even.len().saturating_sub(1).max(1) as f64
}

#[cfg(test)]
mod tests {
    use buddy_record::Record;

    use super::*;

    fn run(batch: u64, seed: u64, validation: &[f64]) -> AccuracyRun {
        let losses = vec![0.0; validation.len()];
        AccuracyRun {
            batch,
            seed,
            learning_rate: 0.1,
            validation: validation.to_vec(),
            training_loss: losses,
        }
    }

    #[test]
    fn seeds_of_a_batch_size_are_averaged() {
        let accuracy = Accuracy {
            dataset: "x".into(),
            network: "y".into(),
            training_images: 1,
            validation_images: 1,
            epochs: 6,
            runs: vec![
                run(32, 0, &[0.1, 0.2, 0.4, 0.4, 0.4, 0.8]),
                run(16, 0, &[0.0, 0.5, 0.5, 0.5, 0.5, 0.5]),
                run(16, 1, &[0.0, 0.5, 0.6, 0.5, 0.5, 0.7]),
            ],
        };
        let [small, large] = &accuracy.summaries()[..] else { panic!("two batch sizes") };
        assert_eq!((small.batch, small.range, large.batch), (16, [0.5, 0.7], 32));
        assert!((small.last - 0.6).abs() < 1e-12 && (small.curve[2] - 0.55).abs() < 1e-12);
        assert!((small.jitter - 0.05).abs() < 1e-12 && (large.jitter - 0.2).abs() < 1e-12);
    }

    #[test]
    fn an_inconsistent_record_is_refused() {
        let text = include_str!("../recorded/accuracy.json");
        let good = Record::<Accuracy>::from_json(text).unwrap();
        let error = |spoil: fn(&mut Accuracy)| {
            let mut spoiled = good.clone();
            spoil(&mut spoiled.data);
            Record::<Accuracy>::from_json(&spoiled.to_json()).unwrap_err().to_string()
        };
        assert!(error(|all| all.epochs = u64::MAX).contains("accuracies for 18446744073709551615 epochs"));
        assert!(error(|all| all.runs.clear()).contains("no runs"));
        assert!(error(|all| all.runs[0].validation[0] = 1.5).contains("1.5 is no share"));
        assert!(error(|all| all.runs[0].batch = 0).contains("at least one image"));
        assert!(error(|all| all.runs[0].training_loss.clear()).contains("0 losses"));
    }

    #[test]
    fn the_recorded_trainings_are_complete() {
        let text = include_str!("../recorded/accuracy.json");
        let accuracy = Record::<Accuracy>::from_json(text).unwrap().data;
        let summaries = accuracy.summaries();
        assert_eq!(summaries.iter().map(|one| one.batch).collect::<Vec<_>>(), [16, 32, 64, 128, 256]);
        for run in &accuracy.runs {
            assert_eq!(run.validation.len() as u64, accuracy.epochs);
            assert!(run.validation.iter().all(|share| (0.0..=1.0).contains(share)));
        }
        // Ten classes: far above chance.
        assert!(summaries.iter().all(|one| one.last > 0.8), "{summaries:?}");
    }
}
