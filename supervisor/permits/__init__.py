"""May this call run, and with which policy?"""
