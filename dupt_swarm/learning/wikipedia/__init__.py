"""Wikipedia's dumps as text.

export          MediaWiki's XML, page by page
markup          an article without its markup; also the program that a worker runs
workers         a process per core that removes markup
articles        all of it: a dump, known by its name, to the text of its articles
"""
