//! Summary of linear layers: the mean over the matrices for each number of tokens.

use super::FusedReport;

/// Linear layers with a number of tokens, on all matrices, compared with cuBLASLt or the listed
/// kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The weights, as rows name them.
    pub memory: String,
    /// Tokens of each layer.
    pub tokens: u32,
    /// Matrices that were measured.
    pub matrices: usize,
    /// Geometric mean of the speedups, in a chain.
    pub chain: f64,
    /// Smallest and largest speedup.
    pub range: (f64, f64),
    /// Geometric mean of the speedups without overlap.
    pub alone: f64,
    /// Speedup in a chain over the same kernels on plain weights; `None` where cuBLASLt multiplies.
    pub twin: Option<f64>,
}

impl FusedReport {
    /// Returns a summary for each kind of weights and number of tokens.
    pub fn summaries(&self) -> Vec<Summary> {
        let mut all: Vec<(&str, u32)> =
            self.rows.iter().filter_map(|row| Some((row.memory.as_str(), row.tokens?))).collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(|(memory, tokens)| self.summary(memory, tokens)).collect()
    }

    fn summary(&self, memory: &str, tokens: u32) -> Summary {
        let rows = || self.rows.iter().filter(move |row| row.tokens == Some(tokens) && row.memory == memory);
        let chain = |row: &super::FusedRow| row.overlapped_us.unwrap_or(row.fused_us);
        let chains: Vec<f64> = rows().map(|row| row.against_us / chain(row)).collect();
        let alone: Vec<f64> = rows().map(super::FusedRow::ratio).collect();
        let twins: Vec<f64> = rows().filter_map(|row| Some(row.twin_overlapped_us? / chain(row))).collect();
        let fold = |by: fn(f64, f64) -> f64, from| chains.iter().copied().fold(from, by);
        Summary {
            memory: memory.to_owned(),
            tokens,
            matrices: chains.len(),
            chain: geomean(&chains),
            range: (fold(f64::min, f64::INFINITY), fold(f64::max, 0.0)),
            alone: geomean(&alone),
            twin: (!twins.is_empty()).then(|| geomean(&twins)),
        }
    }
}

fn geomean(of: &[f64]) -> f64 {
    (of.iter().map(|ratio| ratio.ln()).sum::<f64>() / of.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{FusedRow, Shapes, Wrong},
        *,
    };

    fn row(tokens: Option<u32>, [fused, overlapped, against]: [f64; 3], twin: Option<f64>) -> FusedRow {
        FusedRow {
            what: String::new(),
            tokens,
            memory: String::new(),
            fused_us: fused,
            overlapped_us: Some(overlapped),
            against: String::new(),
            against_us: against,
            twin_us: against,
            twin_overlapped_us: twin,
            fused_bytes: 3,
            plain_bytes: 4,
            of_memory: 0.9,
            overflow: 0.0,
            limiter: String::new(),
        }
    }

    fn report(rows: Vec<FusedRow>) -> FusedReport {
        FusedReport {
            gpu: "a GPU".to_owned(),
            driver: 13000,
            read_gb_per_s: 4000.0,
            copy_gb_per_s: 4000.0,
            shapes: Shapes::default(),
            rows,
            wrong: Vec::new(),
            seconds: 1.0,
        }
    }

    #[test]
    fn a_record_says_what_was_wrong_and_one_from_before_says_nothing() {
        let none = report(vec![row(Some(8), [10.0, 5.0, 10.0], None)]);
        let text = serde_json::to_string(&none).unwrap();
        assert!(!text.contains("wrong"));
        assert_eq!(serde_json::from_str::<FusedReport>(&text).unwrap(), none);
        let wrong = Wrong { what: "a layer".to_owned(), why: "3 results".to_owned() };
        let some = FusedReport { wrong: vec![wrong], ..none };
        let text = serde_json::to_string(&some).unwrap();
        assert!(text.contains(r#""wrong":[{"what":"a layer","why":"3 results"}]"#), "{text}");
        assert_eq!(serde_json::from_str::<FusedReport>(&text).unwrap(), some);
    }

    #[test]
    fn each_number_of_tokens_has_the_mean_of_its_matrices() {
        let report = report(vec![
            row(None, [1.0, 1.0, 100.0], None),
            row(Some(8), [10.0, 5.0, 10.0], Some(10.0)),
            row(Some(1), [10.0, 10.0, 15.0], None),
            row(Some(8), [10.0, 20.0, 10.0], None),
        ]);
        let [one, eight] = &report.summaries()[..] else { panic!("two numbers of tokens") };
        assert_eq!((one.tokens, one.matrices, one.twin), (1, 1, None));
        assert!((one.chain - 1.5).abs() < 1e-12 && (one.alone - 1.5).abs() < 1e-12);
        assert_eq!((eight.tokens, eight.matrices, eight.range), (8, 2, (0.5, 2.0)));
        assert!((eight.chain - 1.0).abs() < 1e-12 && (eight.twin.unwrap() - 2.0).abs() < 1e-12);
    }
}
