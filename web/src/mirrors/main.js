// Which mirror? Ranks stations and downloads by the forecast time to download a file.
