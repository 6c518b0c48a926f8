"""From measurements to a cost model with error bars, and a profile file.

    measured    what a file of measurements says of steps: work and seconds
    terms       the columns of a fit: what each coefficient is multiplied by
    solve       robust least squares without negative coefficients
    blocks      parts of a log that are left out in turn: held-out errors, standard errors
    steps       the fit to a log of steps
    report      its coefficients, errors and residuals, as text, tables and JSON
"""
