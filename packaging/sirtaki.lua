-- Lmod: the archive of `cargo xtask dist`, unpacked into `prefix`.
local prefix = os.getenv("SIRTAKI_PREFIX") or "/opt/sirtaki/0.1.0"

help([[Sirtaki: distributed deep learning. `sirtaki --help` has the commands, `sirtaki doctor` looks at this machine.]])
whatis("Name: Sirtaki")
whatis("Version: 0.1.0")
whatis("Description: training, search and inference on many processes")

prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
setenv("SIRTAKI_DATA_FOLDER", pathJoin(prefix, "share/sirtaki"))
