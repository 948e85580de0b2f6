//! What Ctrl-C says: where an interrupted run goes on.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// 128 + SIGINT, as shells count.
const INTERRUPTED: i32 = 130;

/// From now on an interrupt ends the program at once, with a line on stderr that says how the run in `folder` goes on. Cells
/// are written whole, so there is nothing to wait for.
pub(super) fn hint(file: &Path, folder: &Arc<OnceLock<PathBuf>>) {
    let (file, folder) = (file.to_owned(), Arc::clone(folder));
    let told = ctrlc::set_handler(move || {
        let text = match folder.get() {
            Some(dir) => {
                let (file, dir) = (file.display(), dir.display());
                format!("interrupted: `treeline run {file} --resume {dir}` goes on with what is left")
            }
            None => "interrupted before the run began".to_owned(),
        };
        // Below the bar; a closed stderr is no reason to stay.
        let _ = writeln!(std::io::stderr(), "\n{text}");
        std::process::exit(INTERRUPTED);
    });
    // Without a handler an interrupt ends the program all the same, without the line.
    drop(told);
}
