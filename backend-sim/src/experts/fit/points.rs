//! Sets of measured points as CSV.

use super::super::{Composition, ExpertsError, Point};

/// Points of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct PointSet {
    /// Routed experts of a layer.
    pub total: u32,
    /// Of which a row uses so many.
    pub top_k: u32,
    /// Where the points come from.
    pub source: String,
    /// The points.
    pub points: Vec<Point>,
}

/// Columns of the file.
const HEAD: &str = "label,requests,rows,chain,siblings,repeats,distinct";
/// More points than any fit needs.
const MOST: usize = 10_000;

impl PointSet {
    /// Reads points: lines `# source: …`, `# experts: 256`, `# top_k: 8`, then the head
    /// `label,requests,rows,chain,siblings,repeats,distinct` and a line a point. Chain, siblings and repeats may be empty
    /// together: then the tree is taken as typical.
    ///
    /// # Errors
    /// `line N`: what is wrong there.
    pub fn from_csv(text: &str) -> Result<Self, ExpertsError> {
        let mut set = Self { total: 0, top_k: 0, source: String::new(), points: Vec::new() };
        let mut head = false;
        for (i, line) in text.lines().enumerate() {
            let at = |problem: String| ExpertsError::new(&format!("line {}", i + 1), problem);
            let line = line.trim();
            if let Some(note) = line.strip_prefix('#') {
                let Some((key, value)) = note.split_once(':') else { continue };
                let count = || value.trim().parse::<u32>().map_err(|e| at(format!("`{}`: {e}", value.trim())));
                match key.trim() {
                    "source" => set.source = value.trim().to_owned(),
                    "experts" => set.total = count()?,
                    "top_k" => set.top_k = count()?,
                    _ => {}
                }
            } else if line.is_empty() {
            } else if !head {
                if line != HEAD {
                    return Err(at(format!("the first line must be `{HEAD}`")));
                }
                head = true;
            } else {
                set.points.push(point(line).map_err(at)?);
                if set.points.len() > MOST {
                    return Err(at(format!("more than {MOST} points")));
                }
            }
        }
        let problem = match () {
            () if set.top_k == 0 || set.top_k > set.total => "must say `# experts: N` and `# top_k: K`, K ≤ N",
            () if set.source.is_empty() => "must say `# source: …`",
            () if set.points.is_empty() => "has no points",
            () => return Ok(set),
        };
        Err(ExpertsError::new("points", problem))
    }
}

fn point(line: &str) -> Result<Point, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let [label, requests, rows, chain, siblings, repeats, distinct] = cells[..] else {
        return Err(format!("has {} cells, not 7", cells.len()));
    };
    let number = |what: &str, text: &str| match text.parse::<f64>() {
        Ok(v) if v.is_finite() && v >= 0.0 => Ok(v),
        _ => Err(format!("{what} `{text}` is no number of zero or more")),
    };
    let composition = if [chain, siblings, repeats].iter().all(|c| c.is_empty()) {
        None
    } else {
        Some(Composition {
            chain: number("chain", chain)?,
            siblings: number("siblings", siblings)?,
            repeats: number("repeats", repeats)?,
        })
    };
    let rows = number("rows", rows)?;
    if let Some(c) = composition
        && (c.nodes() + 1.0 - rows).abs() > 0.02 * rows
    {
        return Err(format!("{rows} rows, but its nodes and the root are {:.2}", c.nodes() + 1.0));
    }
    Ok(Point {
        label: label.to_owned(),
        requests: requests.parse().map_err(|e| format!("requests `{requests}`: {e}"))?,
        rows,
        composition,
        distinct: number("distinct", distinct)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# source: by hand\n# experts: 8\n# top_k: 2\nlabel,requests,rows,chain,siblings,repeats,distinct\n\
                        a,1,3,2,0,0,4\nb,2,1,,,,3.5\n";

    #[test]
    fn points_are_read() {
        let set = PointSet::from_csv(GOOD).unwrap();
        assert_eq!((set.total, set.top_k, set.source.as_str(), set.points.len()), (8, 2, "by hand", 2));
        assert_eq!(set.points[0].composition, Some(Composition::chain(2.0)));
        assert_eq!(set.points[1].composition, None);
    }

    #[test]
    fn wrong_lines_are_named() {
        let check = |from: &str, to: &str, expect: &str| {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            let e = PointSet::from_csv(&text).unwrap_err().to_string();
            assert!(e.contains(expect), "{e}");
        };
        check("a,1,3,2", "a,1,9,2", "`line 5`: 9 rows, but its nodes");
        check("b,2,1", "b,2", "`line 6`: has 6 cells");
        check("3.5", "NaN", "distinct `NaN`");
        check("# experts: 8", "# experts: 1", "K ≤ N");
        check("# source: by hand", "", "`# source: …`");
        check("label,requests", "label,request", "the first line must be");
    }
}
