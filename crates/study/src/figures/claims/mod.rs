//! Every claim of the paper's text with our result and a verdict, and its design constants.

mod facts;
mod list;

use buddy_record::{Figure, Grid, GridCell, Panel, Unit};
use buddy_report::number;

use self::{
    facts::Facts,
    list::{CLAIMS, constants},
};
use crate::{
    About, Experiment, Findings,
    reading::{Reading, SECOND},
};

/// The claims of the paper, one by one.
#[derive(Debug)]
pub struct Claims;

/// A claim of the paper's text.
struct Claim {
    /// Section of the paper.
    place: &'static str,
    /// The claim in a sentence.
    text: &'static str,
    test: Test,
    /// Origin of our result.
    source: Source,
    /// Condition of our result; may be empty.
    note: &'static str,
}

/// Test of a claim.
enum Test {
    /// A number, its value without the effect (1 for a ratio, 0 for a share), and ours.
    Number(Unit, f64, f64, fn(&Facts<'_>) -> Option<f64>),
    /// An upper bound, and ours.
    AtMost(Unit, f64, fn(&Facts<'_>) -> Option<f64>),
    /// A statement without a number: our result in words, and whether it agrees.
    Statement(fn(&Facts<'_>) -> Option<(String, Verdict)>),
    /// No test, with the reason.
    None(&'static str),
}

/// Origin of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Memory of programs that this run executed.
    Measured,
    /// Memory or time recorded on a GPU.
    Recorded,
    /// Simulated GPU, from a record.
    Simulated,
    /// Analytical model.
    Modelled,
    /// Property of the code, held by a test.
    Built,
    /// No result.
    None,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Recorded => "recorded",
            Self::Simulated => "simulated",
            Self::Modelled => "modelled",
            Self::Built => "built",
            Self::None => "",
        }
    }
}

/// Comparison of a claim with our result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Holds,
    InDirection,
    Differs,
    NotTestable,
    /// The data of this run does not include it.
    NotMeasured,
}

/// Largest relative difference of a number that holds.
const NEAR: f64 = 0.15;
/// Smallest share of the paper's effect that agrees in direction; its inverse is the largest.
const QUARTER: f64 = 0.25;

impl Verdict {
    const ALL: [Self; 5] =
        [Self::Holds, Self::InDirection, Self::Differs, Self::NotTestable, Self::NotMeasured];

    fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::InDirection => "holds in direction",
            Self::Differs => "differs",
            Self::NotTestable => "not testable",
            Self::NotMeasured => "not measured",
        }
    }

    /// Compares two numbers by the rule in the figure's text.
    fn of_number(paper: f64, without: f64, ours: f64) -> Self {
        let share = (ours - without) / (paper - without);
        if (ours / paper - 1.0).abs() <= NEAR {
            Self::Holds
        } else if (QUARTER..=1.0 / QUARTER).contains(&share) {
            Self::InDirection
        } else {
            Self::Differs
        }
    }

    fn holds_if(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::Differs }
    }
}

impl Experiment for Claims {
    fn about(&self) -> About {
        About {
            name: "claims",
            title: "The paper's claims, one by one",
            place: "the whole text",
            text: "Every claim of the paper's text with our result and a verdict. A number holds if it is within 15% of the \
                   paper's; it holds in direction if its effect has the same sign and is between a quarter and four times \
                   the paper's, or if a statement about all is true of more than half. Bounds and other statements hold or differ; \
                   a distance from the ideal GPU counts in both directions. The last column says where our result comes from: \
                   measured (memory of the programs of this run), recorded (on a GPU), simulated (recorded simulations of \
                   the model GPU), modelled (an analytical model), built (a property of the code that a test holds). The \
                   second table lists constants of the design; they are chosen, not results. The third repeats the \
                   simulated claims with the paper's ratios and overflow imposed, the fourth the claims about memory with \
                   the second reading of BPC.",
        }
    }

    fn needs_speed(&self) -> bool {
        true
    }

    fn draw(&self, found: &Findings) -> Figure {
        let claims = judged("claims", rows(|_| true, &Facts::new(found)));
        let columns = ["section", "constant", "paper", "ours"];
        let chosen = table("Constants of the design".to_owned(), &columns, constants());
        let simulated = |claim: &Claim| claim.place == "4.2" && claim.source == Source::Simulated;
        let title = "claims of section 4.2 with the paper's ratios and overflow imposed";
        let imposed = rows(simulated, &Facts::imposed(found)).into_iter().map(Row::imposed);
        let imposed = judged(title, imposed.filter(Row::is_known).collect());
        let second = Reading::of(found, SECOND);
        let memory = |claim: &Claim| {
            let of_memory = matches!(claim.source, Source::Measured | Source::Recorded);
            of_memory && (claim.place == "2.4" || claim.place.starts_with("3."))
        };
        let title = "claims of sections 2.4 and 3 with the second reading of BPC, bpc-best";
        let facts = Facts::read_as(found, second.subjects(found), SECOND.name());
        let again = judged(title, rows(memory, &facts).into_iter().filter(Row::is_known).collect());
        Figure {
            panels: [claims, chosen, imposed, again].map(Panel::Table).into(),
            missing: found.missing(),
            ..self.about().figure()
        }
    }
}

fn rows(chosen: impl Fn(&Claim) -> bool, facts: &Facts<'_>) -> Vec<Row> {
    CLAIMS.iter().filter(|claim| chosen(claim)).map(|claim| Row::new(claim, facts)).collect()
}

/// Returns the table of some claims, with a count of the verdicts in its title.
fn judged(what: &str, rows: Vec<Row>) -> Grid {
    let columns = ["section", "claim", "paper", "ours", "verdict", "source"];
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let known = Verdict::ALL.into_iter().filter(|verdict| count(*verdict) > 0);
    let counts: Vec<String> = known.map(|verdict| format!("{} {}", count(verdict), verdict.name())).collect();
    let title = format!("{} {what}: {}", rows.len(), counts.join(", "));
    table(title, &columns, rows.iter().map(Row::cells).collect())
}

fn table(title: String, columns: &[&str], rows: Vec<Vec<GridCell>>) -> Grid {
    let columns = columns.iter().map(|name| ((*name).to_owned(), Unit::Number)).collect();
    Grid { title, columns, rows }
}

/// A claim with our result.
struct Row {
    place: &'static str,
    text: &'static str,
    paper: String,
    ours: String,
    /// Condition of our result; may be empty.
    note: &'static str,
    verdict: Verdict,
    source: &'static str,
}

impl Row {
    fn new(claim: &Claim, facts: &Facts<'_>) -> Self {
        let show = |unit: Unit, ours: Option<f64>| ours.map(|ours| number(unit, ours));
        let (paper, ours, verdict) = match claim.test {
            Test::Number(unit, paper, without, ours) => {
                let ours = ours(facts);
                let verdict = ours.map(|ours| Verdict::of_number(paper, without, ours));
                (number(unit, paper), show(unit, ours), verdict)
            }
            Test::AtMost(unit, most, ours) => {
                let ours = ours(facts);
                let verdict = ours.map(|ours| Verdict::holds_if(ours <= most));
                (format!("at most {}", number(unit, most)), show(unit, ours), verdict)
            }
            Test::Statement(ours) => {
                let (text, verdict) = ours(facts).unzip();
                (String::new(), text, verdict)
            }
            Test::None(why) => (String::new(), Some(why.to_owned()), Some(Verdict::NotTestable)),
        };
        Self {
            place: claim.place,
            text: claim.text,
            paper,
            ours: ours.unwrap_or_default(),
            note: claim.note,
            verdict: verdict.unwrap_or(Verdict::NotMeasured),
            source: claim.source.name(),
        }
    }

    fn is_known(&self) -> bool {
        self.verdict != Verdict::NotMeasured
    }

    /// Marks a result of imposed ratios, to which the notes on our data do not apply.
    fn imposed(self) -> Self {
        Self { note: "", source: "imposed", ..self }
    }

    fn cells(&self) -> Vec<GridCell> {
        let note = if self.ours.is_empty() || self.note.is_empty() { "" } else { "; " };
        let ours = format!("{}{note}{}", self.ours, if note.is_empty() { "" } else { self.note });
        let texts = [self.place, self.text, &self.paper, &ours, self.verdict.name(), self.source];
        texts.map(GridCell::from).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{figures::made::findings, findings::CPU};

    #[test]
    fn verdicts_follow_the_rule() {
        let of = |paper, without, ours| Verdict::of_number(paper, without, ours);
        assert_eq!(of(2.0, 1.0, 1.75), Verdict::Holds);
        assert_eq!(of(2.0, 1.0, 1.25), Verdict::InDirection, "a quarter of the effect");
        assert_eq!(of(2.0, 1.0, 1.2), Verdict::Differs);
        assert_eq!(of(0.01, 0.0, 0.04), Verdict::InDirection, "four times the effect");
        assert_eq!(of(0.01, 0.0, 0.05), Verdict::Differs);
        assert_eq!(of(0.05, 0.0, -0.05), Verdict::Differs, "the other sign");
    }

    #[test]
    fn every_claim_has_one_row_and_a_section() {
        let figure = Claims.draw(&findings());
        let [Panel::Table(claims), Panel::Table(constants), Panel::Table(imposed), Panel::Table(again)] =
            &figure.panels[..]
        else {
            panic!("four tables")
        };
        assert!(imposed.rows.len() > 10 && !again.rows.is_empty());
        assert_eq!(claims.rows.len(), CLAIMS.len());
        assert!(claims.rows.iter().chain(&constants.rows).all(|row| row.len() > 3));
        let mut texts: Vec<&str> = CLAIMS.iter().map(|claim| claim.text).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), CLAIMS.len(), "no claim twice");
        for claim in CLAIMS {
            let is_untested = matches!(claim.test, Test::None(_));
            assert_eq!(is_untested, claim.source == Source::None, "{}", claim.text);
        }
    }

    /// cg and seismic at 4/3 and 32/17 in the final design: 1.58, two thirds of the effect of 1.9.
    #[test]
    fn numbers_are_those_of_the_figures() {
        let figure = Claims.draw(&findings());
        let Panel::Table(claims) = &figure.panels[0] else { panic!("a table") };
        let row = |text: &str| {
            let is_it =
                |row: &&Vec<GridCell>| matches!(&row[1], GridCell::Text(claim) if claim.starts_with(text));
            claims.rows.iter().find(is_it).unwrap_or_else(|| panic!("no claim {text}")).clone()
        };
        let cells = |text: &str| row(text)[2..5].to_vec();
        assert_eq!(
            cells("The final design compresses HPC"),
            ["1.90x", "1.58x", "holds in direction"].map(GridCell::from)
        );
        assert_eq!(cells("370.bt compresses")[2], GridCell::from("not measured"));
    }

    /// The others have nine tenths of bpc's ratios; in the final design cpack has `last` times bpc's.
    fn with_five_codecs(last: f64) -> Findings {
        let mut found = findings();
        let alexnet = found.networks.remove("alexnet").unwrap();
        found.sets.insert(CPU, [("alexnet".to_owned(), alexnet)].into());
        let programs = found.programs.values_mut().map(|program| &mut program.profile);
        let networks = found.sets.values_mut().flatten().map(|(_, recorded)| &mut recorded.profile);
        for profile in programs.chain(networks) {
            let bpc = profile.codecs.iter().find(|one| one.codec == "bpc").unwrap().clone();
            profile.codecs.extend(list::OTHER_CODECS.map(|codec| buddy_record::CodecOutcome {
                codec: codec.to_owned(),
                optimistic_ratio: bpc.optimistic_ratio.map(|ratio| 0.9 * ratio),
                ratio: bpc.ratio * if codec == "cpack" { last } else { 0.9 },
                ..bpc.clone()
            }));
        }
        found
    }

    #[test]
    fn the_best_codec_is_best_in_both_groups_and_both_designs() {
        let verdict = |last: f64| {
            let found = with_five_codecs(last);
            let of = |claim: &Claim| claim.text.starts_with("Of five codecs");
            let row = rows(of, &Facts::new(&found)).remove(0);
            (row.verdict, row.ours)
        };
        assert_eq!(verdict(0.9).0, Verdict::Holds);
        let (differs, text) = verdict(1.1);
        assert_eq!(differs, Verdict::Differs, "bpc is first with eight sizes only");
        assert!(text.contains("DL final design: place 2, 4.000x, cpack 4.400x"), "{text}");
    }

    /// The recorded programs are 9% faster than the ideal GPU, which is not within 1% of it.
    #[test]
    fn faster_than_ideal_is_not_within_a_percent_of_it() {
        let found = findings();
        let row = |text: &str| {
            let of = |claim: &Claim| claim.text.starts_with(text);
            rows(of, &Facts::new(&found)).remove(0)
        };
        let hpc = row("With 150 GB/s, HPC");
        assert!(hpc.ours.ends_with("faster") && hpc.verdict == Verdict::Differs, "{}", hpc.ours);
        assert_eq!(row("With 150 GB/s, DL").verdict, Verdict::Holds);
    }

    #[test]
    fn unified_memory_and_buddy_are_compared_at_the_same_capacities() {
        let found = findings();
        for text in ["Oversubscribed Unified Memory", "Buddy Compression takes at most"] {
            let of = |claim: &Claim| claim.text.starts_with(text);
            let row = rows(of, &Facts::new(&found)).remove(0);
            assert!(
                row.ours.contains("capacity 1.50x") && row.ours.contains("capacity 2.00x"),
                "{}",
                row.ours
            );
        }
    }
}
