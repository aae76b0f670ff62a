//! Prints the size-class record of a run: `cargo run -p buddy-profile --example record_run -- DIR`.

use std::path::Path;

use buddy_codec::CodecKind;
use buddy_profile::record_run;
use buddy_record::Record;
use buddy_snapshot::Run;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: record_run DIR")?;
    let run = Run::open(Path::new(&dir))?;
    print!("{}", Record::new(record_run(&run, &[CodecKind::Bpc], &|_| ())?).to_json());
    Ok(())
}
