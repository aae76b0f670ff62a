//! Reads any text as a record of each kind: refused, or consistent enough to be profiled and drawn.

use buddy_codec::CodecKind;
use buddy_record::{Analysis, Figure, Profile, Record, RunInfo, RunRecord, TargetTable};
use buddy_dl::Accuracy;
use buddy_profile::{Measured, Settings, Tried, profile};
use buddy_report::{View, analysis_page, figure_files, profile_page, profile_text, study_page};
use buddy_sweep::Outcome;

/// Limit on drawn rows, since a few bytes may declare millions.
const MOST: usize = 1000;

pub(crate) fn read(text: &str) {
    if let Ok(info) = serde_json::from_str::<RunInfo>(text)
        && info.validate().is_ok()
    {
        assert!(info.bytes() <= 1 << 63);
    }
    if let Ok(record) = Record::<RunRecord>::from_json(text) {
        let tried = Tried { kinds: vec![CodecKind::Bpc], auto: true, threshold: 0.3 };
        if let Ok(measured) = Measured::from_record(&record.data, &tried) {
            let made = profile(&measured, &Settings::final_design(CodecKind::Bpc));
            if let Ok((profile, _)) = made {
                assert!(profile.policies.iter().all(|one| one.ratio.is_finite()));
                profile_text(&profile, &View::default());
            }
        }
    }
    if let Ok(record) = Record::<Profile>::from_json(text)
        && record.data.allocations.len() < MOST
    {
        profile_text(&record.data, &View::default());
        profile_page(&record);
    }
    if let Ok(record) = Record::<Figure>::from_json(text) {
        figure_files(&record.data);
        study_page(&[record], &[], &[], ("fuzz", ""));
    }
    if let Ok(record) = Record::<Analysis>::from_json(text) {
        analysis_page(&record);
    }
    if let Ok(record) = Record::<Accuracy>::from_json(text) {
        assert!(record.data.summaries().iter().all(|one| one.last.is_finite()));
    }
    if let Ok(record) = Record::<Outcome>::from_json(text) {
        assert!(record.data.overflow.is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
    let _ = Record::<TargetTable>::from_json(text);
}
