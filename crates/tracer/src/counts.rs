//! Execution counts of a kernel's instructions, from `ncu --page source --csv`.

use crate::Error;

/// Executions of each instruction of a launch, per warp.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(pub Vec<u64>);

impl Counts {
    /// Returns the sum of all executions.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Parses the counts of all launches, in order.
///
/// # Errors
/// [`Error::Counts`] with the invalid line.
pub fn parse(text: &str) -> Result<Vec<Counts>, Error> {
    let mut launches: Vec<Counts> = Vec::new();
    let mut column = None;
    for line in text.lines().filter(|line| line.starts_with('"')) {
        let wrong = || Error::Counts(line.chars().take(80).collect());
        if line.starts_with("\"Kernel Name\"") {
            launches.push(Counts::default());
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('"').split("\",\"").collect();
        if cells.first() == Some(&"Address") {
            column = cells.iter().position(|&name| name == "Instructions Executed");
            continue;
        }
        let cell = cells.get(column.ok_or_else(wrong)?).ok_or_else(wrong)?;
        let count = cell.replace(',', "").parse().map_err(|_| wrong())?;
        launches.last_mut().ok_or_else(wrong)?.0.push(count);
    }
    Ok(launches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stand_in_their_column() {
        let text = "==PROF== x\n\"Kernel Name\",\"f(int, int)\",\n\"Address\",\"Source\",\"Instructions Executed\",\"x\"\n\
                    \"0x0\",\"LDC R1, c[0x0][0x28]\",\"1,320\",\"7\"\n\"0x10\",\"EXIT\",\"2\",\"7\"\n\"Kernel Name\",\"g\",\n\
                    \"Address\",\"Source\",\"Instructions Executed\",\"x\"\n\"0x0\",\"EXIT\",\"5\",\"1\"\n";
        assert_eq!(parse(text).unwrap(), [Counts(vec![1320, 2]), Counts(vec![5])]);
        assert!(parse("\"Kernel Name\",\"f\",\n\"0x0\",\"EXIT\",\"5\"").is_err());
    }
}
