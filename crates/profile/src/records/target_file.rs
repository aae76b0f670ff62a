//! Writes and reads target files, which are TOML, and creates the codecs of their rows.

use buddy_codec::Codec;
use buddy_core::{Entry, PhaseChange, TargetRange, Targets};
use buddy_record::{AllocationTarget, TargetTable, codec_with_parameters};

use crate::Error;

const HEAD: &str = "\
# A codec and a target for each allocation, for `buddy` and its libraries to read. Edit it freely.
#
# target  how much of every 128-byte entry lies in device memory: 1x (all), 4/3x (96 bytes), 2x (64), 4x (32) or
#         16x (8). What does not fit goes over the link to buddy memory. Or uncompressed: all, and no metadata.
# ranges  instead of a target: one for each range of 8 KiB pages, first to last.
# codec   how entries are compressed; parameters are what the codec learned of the allocation.
";

const CHANGES: &str = "
# For programs that ask for it at their checkpoints; all others leave these out. From a snapshot on, 0 being the first, an
# allocation has these targets instead; `bytes_moved` is the most stored bytes that the change copies.
";

/// Formats a target table. `about` becomes a comment at the top, `note` one above each row.
pub fn write_targets(table: &TargetTable, about: &str, note: impl Fn(usize) -> String) -> String {
    let mut text: String = about.lines().map(|line| format!("# {line}\n")).collect();
    text.push_str(HEAD);
    text.push_str(&format!("version = {}\nprogram = {}\n", table.version, quoted(&table.program)));
    for (index, row) in table.allocations.iter().enumerate() {
        text.push('\n');
        text.extend(note(index).lines().map(|line| format!("# {line}\n")));
        text.push_str(&row_text(row));
    }
    if !table.changes.is_empty() {
        text.push_str(CHANGES);
        text.extend(table.changes.iter().map(change_text));
    }
    text
}

fn change_text(change: &PhaseChange) -> String {
    format!(
        "\n[[change]]\nsnapshot = {}\nname = {}\nbytes_moved = {}\n{}",
        change.snapshot,
        quoted(&change.name),
        change.bytes_moved,
        ranges_text(&change.ranges)
    )
}

fn ranges_text(ranges: &[TargetRange]) -> String {
    let range =
        |range: &TargetRange| format!("    {{ pages = {}, target = \"{}\" }},\n", range.pages, range.target);
    format!("ranges = [\n{}]\n", ranges.iter().map(range).collect::<String>())
}

fn row_text(row: &AllocationTarget) -> String {
    let mut text = format!(
        "[[allocation]]\nname = {}\ncall_site = {}\nbytes = {}\ncodec = {}\n",
        quoted(&row.name),
        quoted(&row.call_site),
        row.bytes,
        quoted(&row.codec)
    );
    if let Ok(toml::Value::Table(parameters)) = toml::Value::try_from(&row.parameters)
        && !parameters.is_empty()
    {
        text.push_str(&format!("parameters = {}\n", toml::Value::Table(parameters)));
    }
    text + &match &row.targets {
        Targets::Uniform(target) => format!("target = \"{target}\"\n"),
        Targets::Pages(ranges) => ranges_text(ranges),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Reads a target file and checks its codecs.
///
/// # Errors
/// [`Error::Targets`] or [`Error::Codec`].
pub fn read_targets(text: &str) -> Result<TargetTable, Error> {
    let table = TargetTable::parse(text)?;
    for row in &table.allocations {
        row_codec(row, Vec::new)?;
    }
    Ok(table)
}

/// Creates the codec of a row from its parameters, or trains it on the sample if there are none.
///
/// # Errors
/// If the codec is unknown or its parameters are invalid.
pub fn row_codec(row: &AllocationTarget, sample: impl FnOnce() -> Vec<Entry>) -> Result<Codec, Error> {
    codec_with_parameters(&row.codec, &row.parameters, sample)
        .map_err(|error| Error::Codec { name: row.name.clone(), what: error.to_string() })
}

#[cfg(test)]
mod tests {
    use buddy_codec::CodecKind;
    use buddy_core::Target;
    use buddy_record::{TARGETS_VERSION, codec_parameters};
    use serde_json::Map;

    use super::*;

    fn row(name: &str, codec: &Codec) -> AllocationTarget {
        AllocationTarget {
            name: name.to_owned(),
            call_site: "solve.c:12 \"main\"".to_owned(),
            bytes: 30_000,
            codec: codec.kind().name().to_owned(),
            parameters: codec_parameters(codec),
            targets: Target::X4Over3.into(),
        }
    }

    fn table() -> TargetTable {
        let sample: Vec<Entry> =
            (0..50u8).map(|i| std::array::from_fn(|byte| i ^ (byte as u8 & 3))).collect();
        let mut allocations: Vec<AllocationTarget> = CodecKind::EVERY
            .iter()
            .map(|kind| row(&format!("of \"{kind}\"\n"), &kind.train(&sample)))
            .collect();
        let range = |pages, target| TargetRange { pages, target };
        allocations[0].targets = Targets::Pages(vec![range(1, Target::X16), range(3, Target::Uncompressed)]);
        let ranges = vec![range(4, Target::X2)];
        let changes = (0..2).map(|snapshot| PhaseChange {
            snapshot,
            name: allocations[0].name.clone(),
            ranges: ranges.clone(),
            bytes_moved: 77 * snapshot as u64,
        });
        let changes = changes.collect();
        TargetTable { version: TARGETS_VERSION, program: "demo".to_owned(), allocations, changes }
    }

    #[test]
    fn a_table_and_its_codec_parameters_round_trip() {
        let table = table();
        let text = write_targets(&table, "made by a test\nof two lines", |_| "a note".to_owned());
        assert!(text.starts_with("# made by a test\n# of two lines\n# A codec"));
        assert_eq!(text.matches("# a note\n[[allocation]]").count(), table.allocations.len());
        assert_eq!(read_targets(&text).unwrap(), table);
        let sample: Vec<Entry> =
            (0..50u8).map(|i| std::array::from_fn(|byte| i ^ (byte as u8 & 3))).collect();
        for (row, kind) in table.allocations.iter().zip(CodecKind::EVERY) {
            assert_eq!(
                row_codec(row, || panic!("the row has parameters")).unwrap(),
                kind.train(&sample),
                "{kind}"
            );
            let bare = AllocationTarget { parameters: Map::new(), ..row.clone() };
            assert_eq!(row_codec(&bare, || sample.clone()).unwrap(), kind.train(&sample), "{kind}");
        }
    }

    #[test]
    fn errors_name_the_mistake() {
        let good =
            "version = 1\nprogram = \"p\"\n[[allocation]]\nname = \"u\"\nbytes = 9000\ncodec = \"bpc\"\n";
        let error = |line: &str| match read_targets(&format!("{good}{line}\n")) {
            Ok(_) => "none".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(error("target = \"2x\""), "none");
        assert!(error("target = \"3x\"").starts_with("invalid targets file: line 7: unknown variant `3x`"));
        assert!(error("taget = \"2x\"").contains("unknown field `taget`"));
        assert!(error("").contains("needs a target or page ranges"));
        assert!(
            error("ranges = [{ pages = 1, target = \"2x\" }]").contains("the ranges have 1 pages; it has 2")
        );
        assert!(error("target = \"2x\"\nparameters = { a = 1 }").contains("bpc has no parameters"));
        assert!(error("target = \"2x\"\n[[allocation]]").contains("missing field"));
        let codec = good.replace("bpc", "bcp") + "target = \"2x\"";
        assert!(read_targets(&codec).unwrap_err().to_string().contains("unknown codec 'bcp'"));
        let window = good.replace("bpc", "bf16") + "target = \"2x\"\nparameters = { window = \"w\" }";
        assert!(read_targets(&window).unwrap_err().to_string().contains("invalid parameters of bf16"));
    }
}
